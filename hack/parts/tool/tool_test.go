// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRequiredVersion(t *testing.T) {
	mod := "module m\n\nrequire example.org/one v1.2.3\n\nrequire (\n\texample.org/two v0.36.3 // indirect\n)\n" +
		"replace (\n\texample.org/three => example.org/three v9.9.9\n)\n"
	for module, want := range map[string]string{"example.org/one": "v1.2.3", "example.org/two": "v0.36.3", "example.org/three": ""} {
		got, err := requiredVersion(mod, module)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v; want %q", module, got, err, want)
		}
	}
}

// TestEveryToolHasItsModule finds what only a build of every tool would find otherwise.
func TestEveryToolHasItsModule(t *testing.T) {
	c, err := openCache()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, tool := range All() {
		if seen[tool.Name] {
			t.Errorf("%s is listed twice", tool.Name)
		}
		seen[tool.Name] = true
		if _, err := c.hash(tool.Module); err != nil {
			t.Errorf("%s: %v", tool.Name, err)
		}
		mod, err := os.ReadFile(filepath.Join(c.tools, tool.Module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(tool.Package, "./") && !strings.Contains(string(mod), tool.Package+"\n") {
			t.Errorf("%s: the go.mod of %s has no tool line for %s", tool.Name, tool.Module, tool.Package)
		}
	}
}

// TestEveryModuleHasItsTool finds a module that nothing builds any more, or not yet.
func TestEveryModuleHasItsTool(t *testing.T) {
	c, err := openCache()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(c.tools, "*", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, mod := range found {
		module := filepath.Base(filepath.Dir(mod))
		if !slices.ContainsFunc(All(), func(t Tool) bool { return t.Module == module }) {
			t.Errorf("%s builds no tool: list one in All, or remove the module", mod)
		}
	}
}

func TestHashCoversSources(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, "nats", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := cache{tools: dir}
	last := ""
	for _, change := range []struct{ name, text string }{
		{"go.mod", "module m"}, {"go.sum", "x"}, {"go.sum", "y"}, {"sub/main.go", "package main"}, {"sub/main.go", "package other"},
	} {
		write(change.name, change.text)
		hash, err := c.hash("nats")
		if err != nil {
			t.Fatal(err)
		}
		if hash == last {
			t.Errorf("a change of %s left the hash as it was", change.name)
		}
		last = hash
	}
	write("README.md", "words")
	if hash, err := c.hash("nats"); err != nil || hash != last {
		t.Errorf("a README changed the hash: %s, %s, %v", last, hash, err)
	}
}

func TestFindListsTheNames(t *testing.T) {
	if _, err := Find("nobody"); err == nil || !strings.Contains(err.Error(), "kube-apiserver") {
		t.Errorf("Find of an unknown name should list the known ones, got %v", err)
	}
}
