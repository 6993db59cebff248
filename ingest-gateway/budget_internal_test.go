// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	for name, c := range map[string]struct {
		groups string
		max    map[string]string // by folder
		want   int64
	}{
		"none":                {"0::/\n", nil, 0},
		"max":                 {"0::/\n", map[string]string{"/": "max\n"}, 0},
		"a container's":       {"0::/\n", map[string]string{"/": "268435456\n"}, 256 << 20},
		"the least above":     {"0::/pods/one\n", map[string]string{"/pods/one": "max\n", "/pods": "1000\n", "/": "2000\n"}, 1000},
		"version 1 is none":   {"4:memory:/x\n", map[string]string{"/x": "1000\n"}, 0},
		"both versions":       {"4:memory:/x\n0::/y\n", map[string]string{"/x": "1000\n", "/y": "3000\n"}, 3000},
		"no such file":        {"", nil, 0},
		"what nobody expects": {"0::/y\n", map[string]string{"/y": "lots"}, 0},
	} {
		root := t.TempDir()
		groups := filepath.Join(root, "groups")
		if err := os.WriteFile(groups, []byte(c.groups), 0o600); err != nil {
			t.Fatal(err)
		}
		for dir, value := range c.max {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, dir, "memory.max"), []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryLimit(groups, root); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
