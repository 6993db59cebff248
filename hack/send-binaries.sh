#!/bin/sh
# Vets and builds substorm-send for the computers that stand in the field: static, without cgo.
# With --vet it builds nothing.
set -eu
cd "$(dirname "$0")/.."
for platform in linux/amd64 linux/arm64 linux/arm/7 windows/amd64; do
	GOOS=${platform%%/*}
	rest=${platform#*/}
	GOARCH=${rest%%/*}
	GOARM=${rest#"$GOARCH"}
	GOARM=${GOARM#/}
	export GOOS GOARCH CGO_ENABLED=0 GOWORK=off
	if [ -n "$GOARM" ]; then export GOARM; else unset GOARM; fi
	go vet ./sender/...
	[ "${1:-}" = --vet ] && continue
	name=substorm-send-$GOOS-$GOARCH${GOARM:+v$GOARM}
	[ "$GOOS" = windows ] && name=$name.exe
	go build -trimpath -ldflags="-s -w ${LDFLAGS:-}" -o "bin/send/$name" ./sender/cmd
	ls -l "bin/send/$name" | awk '{printf "%8.1f MB  %s\n", $5 / 1e6, $9}'
done
