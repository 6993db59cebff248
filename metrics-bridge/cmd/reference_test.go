// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/substorm/substorm/internal/reference"
	metricsbridge "github.com/substorm/substorm/metrics-bridge"
)

// TestReference: the page of the program in docs/reference is what it says of itself.
func TestReference(t *testing.T) {
	page, err := reference.Command(metricsbridge.Command(), "Each flag has an environment variable of its name: `SUBSTORM_LOG_LEVEL` is `--log-level`. Flags win.")
	if err != nil {
		t.Fatal(err)
	}
	reference.Check(t, "../..", "metrics-bridge.md", page)
}
