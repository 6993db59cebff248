// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	const v2, v1, huge = "memory.max", "memory.limit_in_bytes", "9223372036854771712\n"
	for name, c := range map[string]struct {
		groups string
		files  map[string]string
		want   int64
	}{
		"none":                {"0::/\n", nil, 0},
		"max":                 {"0::/\n", map[string]string{v2: "max\n"}, 0},
		"a container's":       {"0::/\n", map[string]string{v2: "268435456\n"}, 256 << 20},
		"the least above":     {"0::/pods/one\n", map[string]string{"pods/one/" + v2: "max\n", "pods/" + v2: "1000\n", v2: "2000\n"}, 1000},
		"no such file":        {"", nil, 0},
		"no group":            {"memory\n4:memory\n", map[string]string{"memory/" + v1: "1000\n"}, 0},
		"what nobody expects": {"0::/y\n", map[string]string{"y/" + v2: "lots"}, 0},

		"version 1":                  {"5:cpu:/x\n4:memory:/x\n", map[string]string{"memory/x/" + v1: "1000\n", "memory/" + v1: huge}, 1000},
		"version 1, a container's":   {"4:memory:/kubepods/pod/one\n", map[string]string{"memory/" + v1: "100663296\n"}, 96 << 20},
		"version 1, the least above": {"4:memory:/a/b\n", map[string]string{"memory/a/b/" + v1: "3000\n", "memory/a/" + v1: "1000\n", "memory/" + v1: "2000\n"}, 1000},
		"version 1, none":            {"4:memory:/x\n", map[string]string{"memory/x/" + v1: huge, "memory/" + v1: huge}, 0},
		"version 1, several":         {"4:hugetlb,memory:/x\n", map[string]string{"memory/x/" + v1: "1000\n"}, 1000},
		"version 1, another's":       {"4:cpu:/x\n3:name=memory:/x\n", map[string]string{"memory/x/" + v1: "1000\n"}, 0},
		"version 1, too large":       {"4:memory:/\n", map[string]string{"memory/" + v1: "18446744073709551615\n"}, 0},
		"both versions":              {"4:memory:/x\n0::/y\n", map[string]string{"memory/x/" + v1: "1000\n", "y/" + v2: "3000\n"}, 1000},
	} {
		root := t.TempDir()
		groups := filepath.Join(root, "groups")
		if err := os.WriteFile(groups, []byte(c.groups), 0o600); err != nil {
			t.Fatal(err)
		}
		for file, value := range c.files {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryLimit(groups, root); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
