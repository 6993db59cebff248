#!/usr/bin/env bash
# Runs the tests of `make test`, or with `e2e` those of `make e2e`. A test that fails is run once more, by itself: on two slow cores
# a server now and then misses a deadline that it keeps otherwise. If it passes only then, its logs are printed at the end with the
# load of the machine, and it is a fault to be mended all the same. More than two such tests fail the run.
set -euo pipefail
cd "$(dirname "$0")/.."

gotestsum=$(go run ./hack/parts path gotestsum)
dir=$(mktemp -d)
while sleep 5; do echo "$(date +%s) $(cat /proc/loadavg 2>/dev/null)"; done >"$dir/load" &
watch=$!
trap 'kill "$watch" 2>/dev/null; rm -rf "$dir"' EXIT

tests() { # NAME FORMAT PACKAGES FLAGS...: of all that many fail in, nothing is run again
  "$gotestsum" --format "$2" --hide-summary skipped --rerun-fails=1 --rerun-fails-max-failures=4 \
    --jsonfile "$dir/$1.json" --packages "$3" -- -vet=off "${@:4}"
}

# First the package whose tests keep two cores busy, alone; then three packages at a time, the longest first: with more, two
# slow cores have servers miss their deadlines.
unit() {
  local controller=./operator/controller failed=0
  local longest=(./cli/up ./ingest-gateway ./mirror-jobs/push ./docs ./cli ./feed-server ./e2e/accounts
    ./archivist/worker ./archivist/retention ./e2e/leaf ./ingest-gateway/store ./charts)
  tests alone pkgname "$controller" -timeout 25m || failed=$?
  tests others pkgname "${longest[*]} $(go list work | grep -v "/${controller#./}\$" | tr '\n' ' ')" -timeout 25m -p 3 || failed=$?
  return "$failed"
}

# Each run brings a cluster up, and prints what it does.
e2e() {
  tests e2e standard-verbose "./hack/cluster ./e2e" -tags e2e -p 1 -count 1 -timeout 90m
}

failed=0
"${1:-unit}" || failed=$?

go run ./hack/reruns -load "$dir/load" -max 2 "$dir"/*.json || failed=$?
exit "$failed"
