#!/usr/bin/env bash
# Runs the tests of `make test`. A test that fails is run once more, by itself: on two slow cores a server now and then misses
# a deadline that it keeps otherwise. Each that passes only then is listed at the end, and is a fault to be mended all the same.
set -euo pipefail
cd "$(dirname "$0")/.."

gotestsum=$(go run ./hack/parts path gotestsum)
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT

tests() { # NAME PACKAGES FLAGS...: of all that many fail in, nothing is run again
  "$gotestsum" --format pkgname --hide-summary skipped --rerun-fails=1 --rerun-fails-max-failures=4 \
    --rerun-fails-report "$again/$1" --packages "$2" -- -vet=off -timeout 25m "${@:3}"
}

# First the package whose tests keep two cores busy, alone; then three packages at a time, the longest first: with more, two
# slow cores have servers miss their deadlines.
controller=./operator/controller
failed=0
tests alone "$controller" || failed=$?
tests others "./ingest-gateway ./ingest-gateway/store ./cli ./feed-server $(go list work | grep -v "/${controller#./}\$" | tr '\n' ' ')" -p 3 || failed=$?

if [ -s "$again/alone" ] || [ -s "$again/others" ]; then
  echo "failed, and run once more:"
  cat "$again"/*
fi
exit "$failed"
