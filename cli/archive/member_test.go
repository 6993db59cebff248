// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bytes"
	"crypto/sha256"
	"os"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// TestMembers: objects in packs are listed and fetched like others; so are those
// that were packed after they had keys of their own.
func TestMembers(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	flags := f.flags(t)
	key := wire.PackKey(site, noon, "gateway-0", "one", 1)
	text := "xxxxone and twoxx"
	if err := f.store.Put(t.Context(), key, strings.NewReader(text), int64(len(text)), objectstore.PutOptions{
		Metadata: map[string]string{wire.MetadataMembers: "2"}}); err != nil {
		t.Fatal(err)
	}
	place := func(what string) wire.Record {
		r := f.frame
		r.Key, r.Offset, r.Length, r.Size = key, int64(strings.Index(text, what)), int64(len(what)), int64(len(what))
		r.ID, r.Digest = wire.MemberID(r.Key, r.Offset), sha256.Sum256([]byte(what))
		return r
	}
	one, two := place("one"), place("two")
	two.ID = wire.RawKey(site, "sonde", two.ReceivedAt, two.Digest) // it had that key before
	list(t, f.store, "sonde", "2026-11-21", 1, one, two)

	out, _ := must(t, append([]string{"ls", "-i", "sonde"}, flags...)...)
	if !strings.Contains(out, one.ID) || !strings.Contains(out, two.ID) {
		t.Errorf("the list lacks %s or %s:\n%s", one.ID, two.ID, out)
	}
	for _, r := range []wire.Record{one, two} {
		for _, name := range []string{r.ID, r.Digest.String()[:12]} {
			out, _ := must(t, append([]string{"get", name, "--file", "-"}, flags...)...)
			if sha256.Sum256([]byte(out)) != r.Digest {
				t.Errorf("%s is %q", name, out)
			}
		}
	}
	t.Chdir(t.TempDir())
	must(t, append([]string{"get", one.ID}, flags...)...)
	file := wire.RawKey("", "", one.ReceivedAt, one.Digest)
	file = file[strings.LastIndexByte(file, '/')+1:]
	if data, err := os.ReadFile(file); err != nil || !bytes.Equal(data, []byte("one")) {
		t.Errorf("file %s: %q, %v", file, data, err)
	}
	for name, want := range map[string]string{
		key:          "is a pack of 2 objects",
		key + "#12":  "lists no object",
		two.ID + "0": "holds no object",
	} {
		if _, _, err := run(t, append([]string{"get", name}, flags...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("get %s: %v, want %q", name, err, want)
		}
	}
}
