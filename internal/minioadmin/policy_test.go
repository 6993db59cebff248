// SPDX-License-Identifier: Apache-2.0

package minioadmin

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The docs show the policy as it is.
func TestPolicyInDocs(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "explanation", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "### The policy of gateways")
	_, text, _ = strings.Cut(text, "```json\n")
	text, _, _ = strings.Cut(text, "```")
	var shown, is any
	document, err := Gateway("substorm").document()
	if err == nil {
		err = json.Unmarshal(document, &is)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &shown); err != nil || !reflect.DeepEqual(shown, is) {
		t.Errorf("docs/explanation/security.md shows %v (%v), the policy is %s", shown, err, document)
	}
}
