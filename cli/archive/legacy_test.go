// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// TestLegacyTree: what came by one connection and another, listed and written as
// it came; damage is an error, as is a path of nothing.
func TestLegacyTree(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	flags := f.flags(t)
	early, line := f.frame, f.late
	early.Port, line.Port, line.Framing = 30100, 30100, wire.FramingLines
	early.ID, line.ID = early.ID+"#", line.ID+"#" // beside those of the fixture, which name no port
	list(t, f.store, "allsky-1", "2026-11-21", 3, line)
	list(t, f.store, "allsky-2", "2026-11-21", 1, early)

	out, _ := must(t, append([]string{"ls", "--legacy"}, flags...)...)
	want := "FIRST     LAST      OBJECTS         BYTES  INSTRUMENTS           PATH\n" +
		"12:00:00  13:00:00        2            13  allsky-1,allsky-2     legacy/192.0.2.7/30100/2026/11/21\n"
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
	out, _ = must(t, append([]string{"ls", "--legacy", "-o", "json"}, flags...)...)
	if !strings.HasPrefix(out, `{"bytes":13,"first":"2026-11-21T12:00:00`) || !strings.HasSuffix(out, `"objects":2,"path":"legacy/192.0.2.7/30100/2026/11/21"}`+"\n") {
		t.Errorf("as JSON: %s", out)
	}
	if out, _ := must(t, append([]string{"cat", "legacy/192.0.2.7/30100/2026/11/21"}, flags...)...); out != "frameframe 2\n" {
		t.Errorf("got %q", out)
	}
	if out, _ := must(t, append([]string{"cat", "legacy/192.0.2.7/30100/2026/11/21", "-i", "allsky-2"}, flags...)...); out != "frame" {
		t.Errorf("of one instrument: %q", out)
	}
	_, notes := must(t, append([]string{"ls", "--legacy", "--day", "2020-01-01"}, flags...)...)
	if !strings.Contains(notes, "lists nothing here") {
		t.Errorf("said %q", notes)
	}
	damaged := early
	damaged.ID, damaged.Port, damaged.Size = damaged.ID+"#", 30101, 6
	list(t, f.store, "allsky-2", "2026-11-21", 2, damaged)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"nothing there": {[]string{"cat", "legacy/192.0.2.7/30100/2026/11/20"}, "lists nothing that came from 192.0.2.7"},
		"no such path":  {[]string{"cat", "legacy/192.0.2.7/30100"}, "ls --legacy"},
		"damaged":       {[]string{"cat", "legacy/192.0.2.7/30101/2026/11/21"}, "damaged"},
		"no objects":    {[]string{"ls", "--legacy", "--duplicates"}, "leave --state"},
	} {
		if _, _, err := run(t, append(c.args, flags...)...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error that says %q", name, err, c.says)
		}
	}
}

// declare writes a registry entry with paths and aliases.
func declare(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), wire.RegistryBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	entry, err := wire.Encode(wire.InstrumentEntry{Instrument: "allsky-1", Station: "rank", Naming: "{year}/{month}/{day}/{station}-{digest:8}.txt",
		Aliases: []string{"rank/{year2}{doy}/{hour}.txt", "old/{name}"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), wire.RegistryInstrumentKey("allsky-1"), entry); err != nil {
		t.Fatal(err)
	}
}

// TestPathsAndAliases: an object by all that leads to it.
func TestPathsAndAliases(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	declare(t, js)
	published := put(t, f.store, "allsky-1", "published", noon.AddDate(0, 0, 2))
	published.Path = "2026/11/23/rank-" + published.Digest.String()[:8] + ".txt"
	list(t, f.store, "allsky-1", "2026-11-23", 1, published)
	if err := f.store.Put(t.Context(), "in/place.txt", strings.NewReader("place"), 5, objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	flags := append(f.flags(t), "--nats-servers", server.URL())
	for name, path := range map[string]string{"key": published.Key, "digest": published.Digest.String(), "path": published.Path, "alias": "rank/26327/12.txt"} {
		if out, _ := must(t, append([]string{"cat", path}, flags...)...); out != "published" {
			t.Errorf("by its %s: %q", name, out)
		}
	}
	if out, _ := must(t, append([]string{"cat", "rank/26325/13.txt"}, flags...)...); out != "frame 2" {
		t.Errorf("an alias of an object that came before its Instrument had one: %q", out)
	}
	t.Chdir(t.TempDir())
	must(t, append([]string{"get", published.Path}, flags...)...)
	if data, err := os.ReadFile(filepath.Base(published.Path)); err != nil || string(data) != "published" {
		t.Errorf("%q, %v", data, err)
	}
	if out, _ := must(t, append([]string{"ls", "-o", "wide", "--day", "2026-11-23"}, flags...)...); !strings.Contains(out, published.Path) {
		t.Errorf("the list lacks the path:\n%s", out)
	}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no such path":          {append([]string{"cat", "2026/11/23/rank-00000000.txt"}, flags...), "no object has this path"},
		"another instrument's":  {append([]string{"cat", published.Path, "-i", "mag-1"}, flags...), "of 0 instruments"},
		"without a registry":    {append([]string{"cat", published.Path}, f.flags(t)...), "--nats-servers"},
		"in place and unlisted": {append([]string{"cat", "in/place.txt"}, flags...), "substorm import --in-place"},
	} {
		if _, _, err := run(t, c.args...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error that says %q", name, err, c.says)
		}
	}
}
