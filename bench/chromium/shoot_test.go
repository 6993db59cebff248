// SPDX-License-Identifier: Apache-2.0

package chromium_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/substorm/substorm/bench/internal/browser"
)

// shoot keeps pictures of a page in the folder that SUBSTORM_PICTURES names, if it does.
func shoot(t *testing.T, tab *browser.Tab) {
	t.Helper()
	dir := os.Getenv("SUBSTORM_PICTURES")
	if dir == "" {
		return
	}
	for name, as := range map[string]struct {
		width int64
		dark  bool
	}{"page": {1280, false}, "page-dark": {1280, true}, "page-narrow": {360, false}} {
		if err := tab.Resize(as.width, 900, as.dark); err != nil {
			t.Fatal(err)
		}
		data, err := tab.Picture()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".png"), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
