#!/usr/bin/env bash
# bench.sh [NAME [FLAG...]]: runs the benchmark bench/NAME, a program (bench/README.md), with its flags and keeps what it prints in
# bench/results; without a name it lists what there is.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
  found=0
  for main in bench/*/main.go; do
    [ -e "$main" ] || continue
    found=1
    name=$(basename "$(dirname "$main")")
    printf '  make bench NAME=%-14s %s\n' "$name" "$(sed -n 's#^// Command [^ ]* ##p' "$main" | head -n 1)"
  done
  [ $found = 1 ] || echo "no benchmark yet: one is added as bench/<name>/main.go, see bench/README.md"
  exit 0
fi

[ -e "bench/$1/main.go" ] || { echo "no benchmark is called $1; make bench lists them" >&2; exit 1; }
mkdir -p bench/results
result=bench/results/$1-$(date -u +%Y%m%dT%H%M%SZ).txt
echo "to be kept in $result and bench/results/$1.json" >&2
{
  echo "# $*, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ' with changes')," \
    "$(date -u +%FT%TZ), $(nproc) cores, $(uname -srm)"
  go run "./bench/$1" "${@:2}"
} | tee "$result"
