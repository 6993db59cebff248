#!/usr/bin/env bash
# Runs the tests of `make test`, or with `e2e` those of `make e2e`. A test that fails is run once more, by itself: on two slow cores
# a server now and then misses a deadline that it keeps otherwise. Each that passes only then is listed at the end, and is a fault
# to be mended all the same.
set -euo pipefail
cd "$(dirname "$0")/.."

gotestsum=$(go run ./hack/parts path gotestsum)
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT

tests() { # NAME FORMAT PACKAGES FLAGS...: of all that many fail in, nothing is run again
  "$gotestsum" --format "$2" --hide-summary skipped --rerun-fails=1 --rerun-fails-max-failures=4 \
    --rerun-fails-report "$again/$1" --packages "$3" -- -vet=off "${@:4}"
}

# First the package whose tests keep two cores busy, alone; then three packages at a time, the longest first: with more, two
# slow cores have servers miss their deadlines.
unit() {
  local controller=./operator/controller failed=0
  tests alone pkgname "$controller" -timeout 25m || failed=$?
  tests others pkgname "./ingest-gateway ./ingest-gateway/store ./cli ./feed-server $(go list work | grep -v "/${controller#./}\$" | tr '\n' ' ')" -timeout 25m -p 3 || failed=$?
  return "$failed"
}

# Each run brings a cluster up, and prints what it does.
e2e() {
  tests e2e standard-verbose "./hack/cluster ./e2e" -tags e2e -p 1 -count 1 -timeout 90m
}

failed=0
"${1:-unit}" || failed=$?

for report in "$again"/*; do
  if [ -s "$report" ]; then
    echo "failed, and run once more:"
    cat "$report"
  fi
done
exit "$failed"
