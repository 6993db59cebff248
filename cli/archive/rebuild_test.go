// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

func (f *fixture) lose(t *testing.T, prefix string) {
	t.Helper()
	for info, err := range f.store.List(t.Context(), prefix, "") {
		if err == nil {
			err = f.store.Delete(t.Context(), info.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRebuild(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	flags := f.flags(t)
	rebuild := func(args ...string) (out, notes string) {
		t.Helper()
		return must(t, append(append([]string{"rebuild", "--scratch-dir", t.TempDir()}, flags...), args...)...)
	}
	list := func() []string {
		t.Helper()
		out, _ := must(t, append([]string{"ls", "--duplicates", "-o", "json"}, flags...)...)
		return slices.Sorted(strings.Lines(out))
	}
	before := list()
	out, notes := rebuild("--dry-run")
	if !strings.Contains(out, "Untold") || !strings.Contains(out, f.duplicate.ID+"  listed as Duplicate") || !strings.Contains(notes, "0 unlisted, 0 missing") ||
		!strings.Contains(notes, "nothing was changed") {
		t.Errorf("dry run said %q, %q", out, notes)
	}
	rebuild("--tell")
	if out, notes := rebuild("--dry-run"); out != "" || !strings.Contains(notes, "0 untold") {
		t.Errorf("after --tell: %q, %q", out, notes)
	}

	f.lose(t, wire.ManifestSitePrefix(site))
	if out, _ := rebuild(); strings.Contains(out, f.earlier.ID) || strings.Contains(out, f.frame.ID+"\n") || !strings.Contains(out, f.duplicate.ID) {
		t.Errorf("what is young was listed, or what changes tell of was not: %q", out)
	}
	if out, _ := rebuild("--age", "0s", "--day", "2026-11-20"); strings.Count(out, "Unlisted") != 1 || !strings.Contains(out, f.earlier.ID) {
		t.Errorf("of one day: %q", out)
	}
	if out, notes := rebuild("--age", "0s"); !strings.Contains(notes, "1 days were made anew") || !strings.Contains(notes, "JetStream is not known") {
		t.Errorf("rebuild said %q, %q", out, notes)
	}
	if diff := cmp.Diff(before, list()); diff != "" {
		t.Errorf("listed (-before +after):\n%s", diff)
	}
	out, notes = rebuild("--age", "0s")
	if out != "" || !strings.Contains(notes, "0 days were made anew") {
		t.Errorf("a second time: %q, %q", out, notes)
	}
}

// TestUnreadableChanges: changes that cannot be read stop no other day, and of their own
// nothing is listed that they may have retracted.
func TestUnreadableChanges(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	flags := append(f.flags(t), "--age", "0s", "--scratch-dir", t.TempDir())
	list := func() []string {
		t.Helper()
		out, _ := must(t, append([]string{"ls", "--duplicates", "-o", "json"}, f.flags(t)...)...)
		return slices.Sorted(strings.Lines(out))
	}
	before := list()
	must(t, append([]string{"rebuild", "--tell"}, flags...)...)
	key := wire.ChangesKey(site, "allsky-1", "2026-11-21", 1, f.frame.Digest)
	if err := f.store.Put(t.Context(), key, strings.NewReader("hello"), 5, objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, _, err := run(t, append([]string{"verify"}, flags...)...); err == nil || !strings.Contains(out, "Unreadable") || !strings.Contains(out, key) {
		t.Errorf("verify: %q, %v", out, err)
	}
	f.lose(t, wire.ManifestSitePrefix(site))
	out, notes := must(t, append([]string{"rebuild"}, flags...)...)
	if !strings.Contains(out, key+"  changes: nobody knows") || !strings.Contains(notes, "1 files unreadable") || !strings.Contains(notes, "2 days were made anew") {
		t.Errorf("rebuild: %q, %q", out, notes)
	}
	if got := list(); len(got) != 2 {
		t.Errorf("listed of the other days: %q", got)
	}
	f.lose(t, key)
	must(t, append([]string{"rebuild"}, flags...)...)
	if diff := cmp.Diff(before, list()); diff != "" {
		t.Errorf("listed (-before +after):\n%s", diff)
	}
}

// Versions are numbered beyond those that the index knew, and the index is marked as incomplete.
func TestRebuildTellsTheIndex(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	kv, err := js.KeyValue(t.Context(), wire.IndexBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	entry, err := wire.Encode(wire.IndexEntry{Open: []wire.RootDay{{Day: "2026-11-20", Version: 6, Entries: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string][]byte{"allsky-1": entry, wire.IndexListedKey: []byte("{}")} {
		if _, err := kv.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	f.lose(t, wire.ManifestSitePrefix(site))
	must(t, append([]string{"rebuild", "--age", "0s", "--nats-servers", server.URL()}, f.flags(t)...)...)
	if _, err := f.store.Head(t.Context(), wire.ManifestVersionKey(site, "allsky-1", "2026-11-20", 7)); err != nil {
		t.Errorf("version 7: %v", err)
	}
	if e, err := kv.Get(t.Context(), wire.IndexListedKey); err == nil {
		t.Errorf("the index still passes for complete: %q", e.Value())
	}
	if _, _, err := run(t, append([]string{"rebuild", "--age", "-1s"}, f.flags(t)...)...); err == nil || !strings.Contains(err.Error(), "0 or more") {
		t.Errorf("a negative age: %v", err)
	}
}
