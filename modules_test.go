// SPDX-License-Identifier: Apache-2.0

// Package substorm_test tests how the checkout is made up.
package substorm_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryModuleIsInGoWork finds a go.mod that the Makefile does not test, vet, lint and tidy, for it does so with what
// go.work lists. The modules in hack/tools hold programs of others, which hack/parts builds and tests.
func TestEveryModuleIsInGoWork(t *testing.T) {
	work, err := os.ReadFile("go.work")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || path == filepath.Join("hack", "tools")):
			return filepath.SkipDir
		case entry.Name() != "go.mod":
			return nil
		}
		dir := "./" + filepath.ToSlash(filepath.Dir(path))
		if dir == "./." {
			dir = "."
		}
		if !strings.Contains(string(work), "\n\t"+dir+"\n") {
			t.Errorf("no check covers the module in %s: run `go work use %s` and commit go.work", dir, dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
