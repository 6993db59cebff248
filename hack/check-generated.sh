#!/usr/bin/env bash
# Fails where `make generate` or `go mod tidy` would change something. Changes nothing itself.
set -euo pipefail
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

gen=$(go run ./hack/parts path controller-gen)
"$gen" crd paths=./operator/api/... output:crd:dir="$tmp/crds"
"$gen" object:headerFile=hack/boilerplate.go.txt paths=./operator/api/... output:object:dir="$tmp/api"

stale=0
for made in "$tmp"/crds/*.yaml; do
  diff -u "crds/$(basename "$made")" "$made" || stale=1
done
for kept in crds/*.yaml; do
  [ -e "$tmp/$kept" ] || { echo "$kept stands for no kind any more: remove it"; stale=1; }
done
diff -u operator/api/v1alpha1/zz_generated.deepcopy.go "$tmp/api/zz_generated.deepcopy.go" || stale=1
[ $stale = 0 ] || echo "run \`make generate\` and commit what it writes" >&2
go mod tidy -diff || { echo "run \`go mod tidy\` and commit what it writes" >&2; stale=1; }
exit $stale
