// SPDX-License-Identifier: Apache-2.0

//go:build race

package ingestgateway_test

// With go test -race the gateway's own process is watched too.
func init() { buildFlags = append(buildFlags, "-race") }
