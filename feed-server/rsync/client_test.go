// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// All that everybody may have comes, with the times of receipt; a second run brings nothing.
func TestCopy(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := l.fill()
	dir := t.TempDir()
	l.run(0, "-a", l.module+"/", dir)
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	info, err := os.Stat(filepath.Join(dir, camera, "readme.txt"))
	if err != nil || !info.ModTime().Equal(noon) || info.Mode() != 0o644 {
		t.Errorf("%v %v, %v; want %v", info.ModTime(), info.Mode(), err, noon)
	}
	if out := l.run(0, "-ai", l.module+"/", dir); out != "" {
		t.Errorf("again: %s", out)
	}
}
