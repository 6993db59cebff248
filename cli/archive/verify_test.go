// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

func TestVerify(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	flags := append([]string{"verify", "--scratch-dir", t.TempDir(), "--age", "0s"}, f.flags(t)...)
	if out, notes := must(t, flags...); out != "" || !strings.Contains(notes, "4 objects, 37 B, read and whole") {
		t.Errorf("of a whole archive: %q, %q", out, notes)
	}
	metadata, err := wire.ObjectMetadata(notice("allsky-1", f.late))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.store.Put(t.Context(), f.late.Key, strings.NewReader("Frame 2"), 7, objectstore.PutOptions{Metadata: metadata}); err != nil {
		t.Fatal(err)
	}
	if err := f.store.Delete(t.Context(), f.segment.Key); err != nil {
		t.Fatal(err)
	}
	unlisted := put(t, f.store, "new-1", "not listed", noon)
	finds := func(out string, kind string, r wire.Record) bool {
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, kind+" ") && strings.Contains(line, r.ID) {
				return true
			}
		}
		return false
	}
	out, notes, err := run(t, flags...)
	if err == nil || !strings.Contains(err.Error(), "not whole: 1 Damaged, 1 Missing, 1 Unlisted") || !strings.Contains(notes, "2 objects") ||
		!finds(out, "Damaged", f.late) || !finds(out, "Missing", f.segment) || !finds(out, "Unlisted", unlisted) || strings.Count(out, "\n") != 3 {
		t.Errorf("verify: %q, %q, %v", out, notes, err)
	}
	out, _, err = run(t, append(flags, "--quick")...)
	if err == nil || finds(out, "Damaged", f.late) || !finds(out, "Missing", f.segment) {
		t.Errorf("verify --quick: %q, %v", out, err)
	}
	out, _, _ = run(t, append(flags, "--quick", "-o", "json")...)
	if !strings.Contains(out, `{"kind":"Missing","instrument":"`) || !strings.Contains(out, f.segment.ID) || strings.Count(out, "\n") != 2 {
		t.Errorf("verify -o json: %q", out)
	}
	if out, _ := must(t, append(flags, "--day", "2026-11-20")...); out != "" {
		t.Errorf("of a day that is whole: %q", out)
	}
	if _, _, err := run(t, append(flags, "--parallel", "0")...); err == nil || !strings.Contains(err.Error(), "--parallel") {
		t.Errorf("--parallel 0: %v", err)
	}
}

// TestVerifyForeign: what cannot be read as ours is found, not passed over; a file that
// is none of a manifest hides nothing from readers, and rebuild makes no version for it.
func TestVerifyForeign(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	flags := append([]string{"--scratch-dir", t.TempDir(), "--age", "0s"}, f.flags(t)...)
	day := wire.ManifestPrefix(site, "allsky-1", "2026-11-21")
	pack := wire.PacksPrefix(site) + "2026/11/21/notes.txt"
	metadata, err := wire.ObjectMetadata(notice("allsky-1", f.late))
	if err != nil {
		t.Fatal(err)
	}
	changes := wire.ChangesPrefix(site, "allsky-1", "2026-11-21") + "notes.txt"
	noDay := wire.ChangesPrefix(site, "allsky-1", "notes")
	short := f.late.Key + "9" // its metadata speaks of other bytes
	for key, opts := range map[string]objectstore.PutOptions{day + "notes.txt": {}, pack: {}, changes: {}, noDay + "1": {}, short: {Metadata: metadata}} {
		if err := f.store.Put(t.Context(), key, strings.NewReader("hello"), 5, opts); err != nil {
			t.Fatal(err)
		}
	}
	if out, _ := must(t, append([]string{"ls", "--instrument", "allsky-1", "--day", "2026-11-21"}, f.flags(t)...)...); !strings.Contains(out, f.frame.ID) {
		t.Errorf("ls: %q", out)
	}
	names := func(out string) {
		t.Helper()
		for _, key := range []string{day + "notes.txt", pack, changes, noDay, short} {
			if !strings.Contains(out, key) {
				t.Errorf("%s is not named in %q", key, out)
			}
		}
		if strings.Count(out, "Foreign ") != 5 {
			t.Errorf("found %q", out)
		}
	}
	out, _, err := run(t, append([]string{"verify"}, flags...)...)
	if err == nil || !strings.Contains(err.Error(), "not whole: 5 Foreign") {
		t.Errorf("verify: %v", err)
	}
	names(out)
	for range 2 {
		out, notes := must(t, append([]string{"rebuild"}, flags...)...)
		if !strings.Contains(notes, "5 foreign") || !strings.Contains(notes, "0 days were made anew") {
			t.Errorf("rebuild: %q", notes)
		}
		names(out)
	}
}

// Members of a pack that its gateway reports as failed are not unlisted: no sender has a receipt for them, and the archivist removes the pack.
func TestVerifyFailedPack(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	key := wire.PackKey(site, noon, "gateway-0", "one", 1)
	var data bytes.Buffer
	w := pack.NewWriter(key, &data)
	r := f.frame
	r.ID, r.Key = "", ""
	r.Digest, r.Size = sha256.Sum256([]byte("not confirmed")), int64(len("not confirmed"))
	if _, err := w.Add(notice("allsky-1", r), strings.NewReader("not confirmed")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.store.Put(t.Context(), key, bytes.NewReader(data.Bytes()), int64(data.Len()), objectstore.PutOptions{Metadata: map[string]string{wire.MetadataMembers: "1"}}); err != nil {
		t.Fatal(err)
	}
	flags := append([]string{"--scratch-dir", t.TempDir(), "--age", "0s", "--nats-servers", server.URL()}, f.flags(t)...)
	if out, _, err := run(t, append([]string{"verify", "--instrument", "allsky-1"}, flags...)...); err == nil || !strings.Contains(out, "Unlisted") || !strings.Contains(out, key) {
		t.Errorf("a pack that nobody lists: %q, %v", out, err)
	}
	putValue(t, js, wire.StatusBucket(site), wire.FailedPacksKey("gateway-0"), wire.FailedPacks{Gateway: "gateway-0", Packs: []string{key}})
	out, notes, err := run(t, append([]string{"verify", "--instrument", "allsky-1"}, flags...)...)
	if err != nil || strings.Contains(out, "Unlisted") || !strings.Contains(notes, "gateways report 1 packs as failed") {
		t.Errorf("once its gateway reports it: %q, %q, %v", out, notes, err)
	}
}
