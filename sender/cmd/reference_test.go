// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/substorm/substorm/internal/reference"
)

// TestReference: the page of the program in docs/reference is what it says of itself.
func TestReference(t *testing.T) {
	page, err := reference.Command(command(), "`substorm send` alone, for computers in the field.")
	if err != nil {
		t.Fatal(err)
	}
	reference.Check(t, "../..", "substorm-send.md", page)
}
