// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/substorm/substorm/internal/reference"
)

// TestReference: the page of the program in docs/reference is what it says of itself.
func TestReference(t *testing.T) {
	page, err := reference.Command(Command(), "As `kubectl-substorm` in your `PATH` it is also `kubectl substorm`. Exit codes: 0; 1 for an error, or where `substorm status` finds problems; 2 for a command line that makes no sense; 130 when interrupted.")
	if err != nil {
		t.Fatal(err)
	}
	reference.Check(t, "..", "substorm.md", page)
}
