// SPDX-License-Identifier: Apache-2.0

// Package docs tests what the documentation says.
package docs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var example = regexp.MustCompile("(?s)<!-- example: ([a-z.-]+) -->\n```json\n(.*?)```")

// reference is a link of the README of the internal formats to a golden file.
var reference = regexp.MustCompile(`\(testdata/v1/([a-z.-]+)\)`)

// superseded are golden files whose values are spelled otherwise today; they are still read.
var superseded = map[string]bool{"heartbeat-sampling.json": true, "status-sender-sampling.json": true, "registry-sampling.json": true}

// formats are the pages that say how what is stored or sent looks.
var formats = []string{"reference/archive-format.md", "reference/wire-protocols.md", "../internal/wire/README.md"}

// TestExamples: the examples of these pages are the golden files of internal/wire, or links to them.
func TestExamples(t *testing.T) {
	var text []byte
	for _, page := range formats {
		part, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	const golden = "../internal/wire/testdata/v1"
	shown := map[string]bool{}
	for _, m := range example.FindAllSubmatch(text, -1) {
		name := string(m[1])
		shown[name] = true
		want, err := os.ReadFile(filepath.Join(golden, name))
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := json.Compact(&got, m[2]); err != nil {
			t.Fatalf("example %s: %v", name, err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("example %s (-golden +page):\n%s", name, diff)
		}
	}
	for _, m := range reference.FindAllSubmatch(text, -1) {
		name := string(m[1])
		shown[name] = true
		if _, err := os.Stat(filepath.Join(golden, name)); err != nil {
			t.Errorf("link to %s: %v", name, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(golden, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		// A record's metadata is its notice in another dress.
		if name := filepath.Base(f); !shown[name] && !strings.HasPrefix(name, "metadata-") && !superseded[name] {
			t.Errorf("none of %v shows an example of %s", formats, name)
		}
	}
}
