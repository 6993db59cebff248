// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The commands of docs/how-to/rsync.md do what they say.
func TestHowTo(t *testing.T) {
	t.Parallel()
	program(t)
	page, err := os.ReadFile("../../docs/how-to/rsync.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "<!-- run by: TestHowTo -->\n```sh\n")
	script, _, ends := strings.Cut(rest, "```")
	if !found || !ends {
		t.Fatal("the page has no commands")
	}
	l := newLab(t)
	all := l.fill()
	l.Wait(l.Put(camera, "2026/day.csv", "1\n", at(noon.Add(time.Minute))))
	all[camera+"/2026/day.csv"] = "1\n"
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bash", "-exuo", "pipefail", "-c", strings.ReplaceAll(script, "archive.example.org", l.server.Address()))
	cmd.Dir = dir
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, is := range []string{"public data received in the last 60 days", camera, riometer} {
		if !strings.Contains(string(said), is) {
			t.Errorf("it does not say %q: %s", is, said)
		}
	}
	for folder, of := range map[string]string{"allsky-1": camera + "/", "thule": "", "2026": camera + "/2026/", "csv": ""} {
		want := 0
		for path := range all {
			if strings.HasPrefix(path, of) && (folder != "csv" || filepath.Ext(path) == ".csv") {
				want++
			}
		}
		if got := len(files(t, filepath.Join(dir, folder))); got != want {
			t.Errorf("%s has %d files, want %d", folder, got, want)
		}
	}
}
