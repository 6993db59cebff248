// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"fmt"
	"strings"
	"testing"
)

// TestWithoutHints: of kubectl's warnings the one is left out about which nothing is to be done.
func TestWithoutHints(t *testing.T) {
	var out strings.Builder
	w := &withoutHints{&out}
	fmt.Fprint(w, "Warning: resource instruments/x is missing the kubectl.kubernetes.io/last-applied-configuration annotation which is required by kubectl apply.\n")
	fmt.Fprint(w, "Warning: Detected changes to resource x which is currently being deleted.\n")
	if got := out.String(); got != "Warning: Detected changes to resource x which is currently being deleted.\n" {
		t.Errorf("got %q", got)
	}
}
