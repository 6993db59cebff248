// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// Messages of rsync on standard error name the files that failed, in each of its ways.
func TestNamed(t *testing.T) {
	t.Parallel()
	paths := []string{"cam/p/1.txt", "cam/p/4.txt", `cam/p/a "b".txt`, "cam/p/n: m.txt", "x/1.txt", "x/y/2.txt", "cam/p/\u00e6.txt"}
	for _, c := range []struct {
		name, said, want string
		all, cut         bool
	}{
		{"make way", "cannot delete non-empty directory: cam/p/4.txt\ncould not make way for new regular file: cam/p/4.txt\n", "cam/p/4.txt", false, false},
		{"a temporary file", "rsync: [receiver] mkstemp \"/cam/p/.1.txt.a8Zk2Q\" (in data) failed: Permission denied (13)\n", "cam/p/1.txt", false, false},
		{"rename", "rsync: [receiver] rename \"/cam/p/.1.txt.a8Zk2Q\" (in data) -> \"cam/p/1.txt\": Is a directory (21)\n", "cam/p/1.txt", false, false},
		{"the sender", "rsync: [sender] send_files failed to open \"/tmp/scratch/stage/x/1.txt\": Permission denied (13)\n", "x/1.txt", false, false},
		{"verification", "ERROR: cam/p/1.txt failed verification -- update discarded.\n", "cam/p/1.txt", false, false},
		{"a quotation mark", "rsync: [receiver] mkstemp \"/cam/p/.a \"b\".txt.a8Zk2Q\" (in data) failed: Permission denied (13)\n", `cam/p/a "b".txt`, false, false},
		{"a colon", "could not make way for new regular file: cam/p/n: m.txt\n", "cam/p/n: m.txt", false, false},
		{"another byte", "could not make way for new regular file: cam/p/\\#303\\#246.txt\n", "cam/p/\u00e6.txt", false, false},
		{"a folder", "rsync: [generator] recv_generator: mkdir \"/x\" (in data) failed: Permission denied (13)\n", "x/1.txt x/y/2.txt", false, false},
		{"nothing that is known", "rsync: something failed\n", "", true, false},
		{"more than is kept", "could not make way for new regular file: cam/p/4.txt\n", "cam/p/4.txt", true, true},
	} {
		named, rest := failures{some: true, said: c.said + "rsync error: some files/attrs were not transferred (code 23)\n", cut: c.cut}.byPath(paths)
		if got := strings.Join(slices.Sorted(maps.Keys(named)), " "); got != c.want || (rest != "") != c.all {
			t.Errorf("%s: %q failed, want %q; of the rest %q", c.name, got, c.want, rest)
		}
	}
}
