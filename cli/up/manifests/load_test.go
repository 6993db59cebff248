// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/cli/up/manifests"
)

const good = `
# A comment, and an empty document.
---
apiVersion: v1
kind: Secret
metadata: {name: tokens}
stringData: {camera: "yes"}
---
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: hub, namespace: aurora}
spec: {code: hub}
`

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "site.yaml", good)
	write(t, dir, "instruments.json", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"substorm.dev/v1alpha1","kind":"Instrument","metadata":{"name":"camera"}}]}`)
	write(t, dir, "notes.txt", "not read")
	write(t, dir, ".hidden.yaml", "not read: [")
	all, err := manifests.Up.Load([]string{dir}, "default")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range all {
		names = append(names, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
	}
	if got, want := strings.Join(names, ", "), "Instrument default/camera, Secret default/tokens, Site aurora/hub"; got != want {
		t.Errorf("loaded %s, want %s", got, want)
	}
	if all[1].Line != 4 || all[2].Line != 9 {
		t.Errorf("the Secret begins in line %d and the Site in line %d, want 4 and 9", all[1].Line, all[2].Line)
	}
}

// TestTooLarge: a file without end is not read to its end, and many files that are too large together are refused.
func TestTooLarge(t *testing.T) {
	dir := t.TempDir()
	comment := strings.Repeat("#"+strings.Repeat(" ", 1022)+"\n", 10<<10)
	write(t, dir, "1.yaml", comment)
	if _, err := manifests.Up.Load([]string{dir}, "default"); err != nil {
		t.Errorf("10 MiB: %v", err)
	}
	second := write(t, dir, "2.yaml", comment)
	for path, file := range map[string]string{"/dev/zero": "/dev/zero", dir: second} {
		_, err := manifests.Up.Load([]string{path}, "default")
		if want := file + ": this is more than the 16 MiB that substorm up reads: name only manifests with -f"; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// TestBadFiles: each error says where, and what to do.
func TestBadFiles(t *testing.T) {
	const site = "apiVersion: substorm.dev/v1alpha1\nkind: Site\nmetadata: {name: %}\n"
	for name, c := range map[string]struct {
		text string
		says []string
	}{
		"no YAML":          {"apiVersion: v1\nkind: [Secret\nmetadata: {name: x}\n", []string{"bad.yaml:3:9: ", "flow sequence|expected"}},
		"second document":  {good + "---\na: b\n c: d\n", []string{"bad.yaml:15:"}},
		"compressed":       {"\x1f\x8b\x08\x00", []string{"bad.yaml: ", "not text", "-f"}},
		"tab":              {"a:\n\tb: c\n", []string{"bad.yaml:2:1: "}},
		"a list":           {"- a\n- b\n", []string{"bad.yaml:1:1: ", "apiVersion and kind"}},
		"a word":           {"\n\nhello\n", []string{"bad.yaml:3:1: ", "apiVersion and kind"}},
		"no kind":          {"apiVersion: v1\n", []string{"bad.yaml:1:1: ", "apiVersion and kind"}},
		"no name":          {"apiVersion: v1\nkind: Secret\n", []string{"bad.yaml:1:1: ", "no metadata.name"}},
		"a secret number":  {"apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData: {pin: 123456789}\n", []string{"bad.yaml:1:1: ", "stringData.pin", "quotes"}},
		"no secret names":  {"apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData: 123456789\n", []string{"bad.yaml:1:1: ", "stringData has no names", "NAME"}},
		"a field twice":    {"apiVersion: v1\nkind: Secret\nkind: Secret\nmetadata: {name: x}\n", []string{"bad.yaml:", "kind"}},
		"a Deployment":     {"# runs elsewhere\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n", []string{"bad.yaml:2:1: ", `Deployment "web"`, "does not run kind Deployment", "-f"}},
		"declared twice":   {good + "---\n" + "apiVersion: v1\nkind: Secret\nmetadata: {name: tokens}\n", []string{`bad.yaml:14: Secret "tokens"`, "bad.yaml:4"}},
		"two Sites":        {strings.ReplaceAll(site, "%", "north") + "---\n" + strings.ReplaceAll(site, "%", "south"), []string{`bad.yaml:5: Site "south"`, `"north"`, "data folder of its own"}},
		"an unknown group": {"apiVersion: substorm.dev/v9\nkind: Site\nmetadata: {name: hub}\n", []string{"bad.yaml:1:1: ", "substorm.dev/v9"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, t.TempDir(), "bad.yaml", c.text)
			_, err := manifests.Up.Load([]string{path}, "default")
			if err == nil {
				t.Fatal("it is loaded")
			}
			if strings.Contains(err.Error(), "123456789") {
				t.Errorf("the error shows a secret: %v", err)
			}
			for _, text := range c.says {
				found := false
				for one := range strings.SplitSeq(text, "|") {
					found = found || strings.Contains(err.Error(), one)
				}
				if !found {
					t.Errorf("the error lacks %q: %v", text, err)
				}
			}
		})
	}
	if _, err := manifests.Up.Load([]string{filepath.Join(t.TempDir(), "none.yaml")}, "default"); err == nil || !strings.HasPrefix(err.Error(), "-f: ") || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("a file that does not exist: %v", err)
	}
}
