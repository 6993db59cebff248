// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"
	"testing"
)

// An error of a name says the one thing that is wrong with it.
func TestNameErrorSaysItsCause(t *testing.T) {
	causes := map[string]string{
		"a//b.jpg": "a slash", "a/../b.jpg": "stands for a folder", "a/" + strings.Repeat("b", 256): "has 256 bytes", `a\b.jpg`: "a backslash",
	}
	for name, want := range causes {
		err := CheckName(name)
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want one that says %q", name, err, want)
			continue
		}
		for _, other := range causes {
			if other != want && strings.Contains(err.Error(), other) {
				t.Errorf("%.20q: %v speaks of %q too", name, err, other)
			}
		}
	}
}
