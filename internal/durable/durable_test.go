// SPDX-License-Identifier: Apache-2.0

package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/substorm/substorm/internal/durable"
)

func TestReplace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	for _, want := range []string{"the first", "2nd"} {
		if err := os.WriteFile(path+durable.PartSuffix, []byte("what a killed process left"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := durable.Replace(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%q, want %q: %v", got, want, err)
		}
		if _, err := os.Stat(path + durable.PartSuffix); !os.IsNotExist(err) {
			t.Errorf("the part is left: %v", err)
		}
	}
}

// A file that cannot take its place leaves what is there.
func TestReplaceFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "folder")
	if err := os.MkdirAll(filepath.Join(path, "not empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := durable.Replace(path, []byte("x"), 0o600); err == nil {
		t.Error("a file took the place of a folder")
	}
	if _, err := os.Stat(path + durable.PartSuffix); !os.IsNotExist(err) {
		t.Errorf("the part is left: %v", err)
	}
	if _, err := os.Stat(filepath.Join(path, "not empty")); err != nil {
		t.Error(err)
	}
}
