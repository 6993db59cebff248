#!/usr/bin/env bash
# Fails where `make generate` or `make tidy` would change something, and where a module gets other versions with go.work
# than alone. Changes nothing itself.
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

# What tests compile (all modules of go.work together) must be what each module compiles alone.
versions() { # FOLDER
  go list -C "$1" -deps -test -tags e2e -f '{{with .Module}}{{if not (or .Main .Replace)}}{{.Path}} {{.Version}}{{end}}{{end}}' ./... | sort -u
}
modules=$(go list -m -f '{{.Dir}}')
for module in $modules; do
  if ! go mod tidy -C "$module" -diff; then
    echo "run \`make tidy\` and commit what it writes" >&2
    stale=1
    continue
  fi
  GOWORK=off versions "$module" >"$tmp/alone"
  versions "$module" >"$tmp/together"
  diff -u "$tmp/alone" "$tmp/together" || { echo "with go.work, $module gets the versions marked +: \`go get\` them there, then run \`make tidy\`" >&2; stale=1; }
done
exit $stale
