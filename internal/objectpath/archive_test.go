// SPDX-License-Identifier: Apache-2.0

package objectpath

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site   = "thule"
	camera = "allsky-1"
	day    = wire.Day("2026-11-21")
)

func put(t *testing.T, store objectstore.Store, r wire.Record, body string) wire.Record {
	t.Helper()
	metadata, err := wire.ObjectMetadata(wire.Notice{Site: site, Instrument: camera, Record: r})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), r.Key, strings.NewReader(body), r.Size, objectstore.PutOptions{Metadata: metadata, CreateOnly: true}); err != nil {
		t.Fatal(err)
	}
	return r
}

func list(t *testing.T, store objectstore.Store, instrument string, day wire.Day, part int, records ...wire.Record) {
	t.Helper()
	m := wire.Manifest{Header: wire.ManifestHeader{Site: site, Instrument: instrument, Day: day, Writer: "gateway-0", Incarnation: "one"}, Records: records}
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	key := wire.ManifestPartKey(site, instrument, day, part)
	if err := store.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{CreateOnly: true}); err != nil {
		t.Fatal(err)
	}
}

// pack stores one tar and returns the records of its members.
func pack(t *testing.T, store objectstore.Store, key string, at time.Time, bodies ...string) []wire.Record {
	t.Helper()
	var b bytes.Buffer
	var all []wire.Record
	w := tar.NewWriter(&b)
	for i, body := range bodies {
		r := record(at.Add(time.Duration(i)*time.Second), body)
		if err := w.WriteHeader(&tar.Header{Name: r.Key, Size: r.Size, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		r.Key, r.Offset, r.Length = key, int64(b.Len()), r.Size
		r.ID = wire.MemberID(key, r.Offset)
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), key, bytes.NewReader(b.Bytes()), int64(b.Len()), objectstore.PutOptions{CreateOnly: true}); err != nil {
		t.Fatal(err)
	}
	return all
}

// Objects that came from one address to one port are put in order and written as they
// came, wherever they lie, in memory that does not grow with them.
func TestLegacy(t *testing.T) {
	store := testenv.SharedBucket(t)
	var all []wire.Record
	var want bytes.Buffer
	for i := range 40 { // each second one; every kind of framing
		body := fmt.Sprintf("object %d;", i)
		r := record(noon.Add(time.Duration(i)*time.Second), body)
		switch i % 4 {
		case 0:
			r.Framing = wire.FramingLines
			want.WriteString(body + "\n")
		case 1:
			r.Framing = wire.FramingLengthPrefixed
			want.Write(binary.BigEndian.AppendUint32(nil, uint32(len(body))))
			want.WriteString(body)
		default:
			want.WriteString(body)
		}
		r.Source = fmt.Sprintf("192.0.2.7:%d", 40000+i)
		if i%3 == 0 {
			r.Source = fmt.Sprintf("[::ffff:192.0.2.7]:%d", 40000+i)
		}
		all = append(all, put(t, store, r, body))
	}
	members := pack(t, store, "packs/thule/2026/11/21/1795305598987-gateway-0-one-1.tar", noon.Add(time.Minute), "small ", "smaller ")
	want.WriteString("small smaller ")
	all = append(all, members...)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	duplicate := record(noon.Add(time.Hour), "object 3;")
	duplicate.State, duplicate.DuplicateOf = wire.StateDuplicate, "x"
	foreign, elsewhere, unknown, later := record(noon, "foreign"), record(noon, "elsewhere"), record(noon, "unknown"), record(noon, "later")
	foreign.Source, elsewhere.Port, unknown.Port = "192.0.2.8:40000", 5001, 0
	later.ReceivedAt = noon.Add(24 * time.Hour)
	list(t, store, camera, day, 1, append(all[:20:20], duplicate, foreign)...)
	list(t, store, camera, day, 2, append(all[20:30:30], elsewhere, unknown)...)
	list(t, store, "allsky-2", day, 1, all[30:]...) // once the way was another instrument's
	list(t, store, camera, "2026-11-22", 1, later)

	l := wire.Legacy{Address: netip.MustParseAddr("192.0.2.7"), Port: 5000, Day: day}
	for _, space := range []int{1, 7, 42, 43, legacySpace} {
		var got bytes.Buffer
		for n, err := range legacy(t.Context(), store, site, l, []string{camera, "allsky-2"}, space) {
			if err != nil {
				t.Fatal(err)
			}
			if err := Append(t.Context(), store, n.Record, &got); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want.String(), got.String()); diff != "" {
			t.Errorf("space for %d (-want +got):\n%s", space, diff)
		}
	}
	folders, err := Folders(t.Context(), store, site, day, []string{camera, "allsky-2"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, f := range folders {
		got[f.Path()] = f.Bytes
	}
	if diff := cmp.Diff(map[string]int64{"legacy/192.0.2.7/5000/2026/11/21": int64(want.Len()),
		"legacy/192.0.2.7/5001/2026/11/21": 9, "legacy/192.0.2.8/5000/2026/11/21": 7}, got); diff != "" {
		t.Errorf("folders (-want +got):\n%s", diff)
	}
}

func TestFind(t *testing.T) {
	store := testenv.SharedBucket(t)
	in := Instrument{Name: camera, Station: "rank", Naming: parse(t, "{year}/{month}/{day}/{station}-{digest:8}.jpg"),
		Aliases: []*naming.Template{parse(t, "{station}/{year2}{doy}/{hour}{minute}.jpg"), parse(t, "old/{name}")}}
	other := Instrument{Name: "allsky-2", Station: "kir", Naming: in.Naming, Aliases: in.Aliases}
	first := record(noon, "first")
	second := record(noon.Add(10*time.Second), "second")
	third := record(noon.Add(20*time.Second), "third")
	for _, r := range []*wire.Record{&first, &second, &third} {
		r.Path = Path(in.Naming, camera, in.Station, *r, 0)
	}
	third.Path = Told(second.Path, 2)
	marked := record(noon.Add(-time.Second), "duplicates")
	marked.State, marked.DuplicateOf, marked.Path = wire.StateDuplicate, first.ID, first.Path
	list(t, store, camera, day, 1, marked, second, third, first)
	named := record(noon, "named")
	named.Name = "2015/frame 1.fits"
	named.Key = wire.NamedKey(site, camera, named.Name, 1)
	named.ID = named.Key
	put(t, store, named, "named")

	claims := map[string]wire.NameClaim{}
	names := func(_ context.Context, instrument, name string) (wire.NameClaim, bool, error) {
		claim, ok := claims[instrument+"."+name]
		return claim, ok, nil
	}
	found := func(path, id string) {
		t.Helper()
		n, err := Find(t.Context(), store, names, site, path, []Instrument{other, in})
		switch {
		case id == "" && !errors.Is(err, ErrNoPath):
			t.Errorf("%q: %s %v, want ErrNoPath", path, n.ID, err)
		case id != "" && (err != nil || n.ID != id || n.Instrument != camera):
			t.Errorf("%q: %s of %q, %v; want %s", path, n.ID, n.Instrument, err, id)
		}
	}
	found(first.Path, first.ID)
	found(second.Path, second.ID)
	found(third.Path, third.ID)
	found(Told(first.Path, 2), "")
	found("rank/26325/1200.jpg", first.ID) // the first of the minute
	found("kir/26325/1200.jpg", "")
	found("rank/26325/1201.jpg", "")
	found("rank/26324/1200.jpg", "")
	found("old/2015/frame 1.fits", named.ID)
	found("old/2015/frame 2.fits", "")
	corrected := record(noon.Add(time.Hour), "corrected")
	corrected.Name, corrected.Supersedes = named.Name, named.ID
	corrected.Key = wire.NamedKey(site, camera, named.Name, 2)
	corrected.ID = corrected.Key
	put(t, store, corrected, "corrected")
	found("old/2015/frame 1.fits", corrected.ID)
	packed := pack(t, store, "packs/thule/2026/11/25/1795305598987-gateway-0-one-1.tar", noon.AddDate(0, 0, 4), "packed")[0]
	packed.Name = "2015/packed.fits"
	list(t, store, camera, "2026-11-25", 1, packed)
	found("old/2015/packed.fits", "")
	claims[camera+".2015/packed.fits"] = wire.NameClaim{Name: packed.Name, Versions: []wire.NameVersion{{Version: 1, Digest: packed.Digest, Key: packed.ID, ReceivedAt: packed.ReceivedAt}}}
	found("old/2015/packed.fits", packed.ID)
	claims[camera+".2015/frame 1.fits"] = wire.NameClaim{Name: named.Name, Versions: []wire.NameVersion{{Version: 1, Digest: named.Digest, ReceivedAt: noon}}}
	found("old/2015/frame 1.fits", corrected.ID) // claimed, and not listed yet
	found("2026/11/22/rank-00000000.jpg", "")
	found("2026/13/22/rank-00000000.jpg", "")
	found("../x", "")
	found("", "")

	list(t, store, camera, "2026-11-23", 1, first)
	if err := store.Put(t.Context(), wire.ManifestPartKey(site, camera, "2026-11-23", 2), strings.NewReader("damaged"), 7, objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(t.Context(), store, nil, site, "2026/11/23/rank-00000000.jpg", []Instrument{in}); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("of a day that cannot be read: %v", err)
	}
}

func TestOpen(t *testing.T) {
	store := testenv.SharedBucket(t)
	r := put(t, store, record(noon, "frame"), "frame")
	member := pack(t, store, "packs/thule/2026/11/21/1795305598987-gateway-0-one-1.tar", noon, "first", "second")[1]
	for _, c := range []struct {
		r    wire.Record
		want string
	}{{r, "frame"}, {member, "second"}} {
		body, err := Open(t.Context(), store, c.r)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(body)
		if err != nil || string(data) != c.want {
			t.Errorf("%q, %v, want %q", data, err, c.want)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	}
	wrong := r
	wrong.Digest = sha256.Sum256([]byte("another"))
	body, err := Open(t.Context(), store, wrong)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if _, err := io.ReadAll(body); !errors.Is(err, ErrDamaged) {
		t.Errorf("other bytes: %v", err)
	}
	if _, err := Open(t.Context(), store, record(noon, "missing")); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("missing: %v", err)
	}
}

// A read never returns more than the record says, and if there is less, the error has the record.
func TestBroken(t *testing.T) {
	store := testenv.SharedBucket(t)
	r := put(t, store, record(noon, "frame"), "frame")
	member := pack(t, store, "packs/thule/2026/11/21/1795305598987-gateway-0-one-1.tar", noon, "first", "second")[1]
	missing, shorter, behind := record(noon, "missing"), r, member
	shorter.Size = 3
	behind.Offset += 1 << 20
	all := func(r wire.Record) (io.ReadCloser, error) { return Open(t.Context(), store, r) }
	from := func(offset, length int64) func(wire.Record) (io.ReadCloser, error) {
		return func(r wire.Record) (io.ReadCloser, error) { return OpenPart(t.Context(), store, r, offset, length) }
	}
	for name, c := range map[string]struct {
		record wire.Record
		open   func(wire.Record) (io.ReadCloser, error)
		want   string
		broken error
	}{
		"a part": {r, from(1, 3), "ram", nil}, "of a member": {member, from(2, 4), "cond", nil},
		"a part that ends early": {r, from(3, 10), "me", ErrDamaged}, "a part behind the end": {r, from(5, 1), "", ErrDamaged},
		"a part of what is missing": {missing, from(1, 1), "", objectstore.ErrNotFound}, "missing": {missing, all, "", objectstore.ErrNotFound},
		"longer": {shorter, all, "fra", ErrDamaged}, "a member behind the end": {behind, all, "", ErrDamaged},
	} {
		body, err := c.open(c.record)
		var data []byte
		if err == nil {
			data, err = io.ReadAll(body)
			body.Close()
		}
		if string(data) != c.want || !errors.Is(err, c.broken) {
			t.Errorf("%s: %q, %v; want %q, %v", name, data, err, c.want, c.broken)
		}
		var broken *Broken
		if errors.As(err, &broken) != (c.broken != nil) || broken != nil && broken.Record.ID != c.record.ID {
			t.Errorf("%s: %v does not say whose it is", name, err)
		}
	}
}

// Whatever path is asked for, the candidates' templates read it, and an object
// that one of them matches has it.
func FuzzCandidates(f *testing.F) {
	for _, seed := range [][2]string{
		{"{year}/{month}/{day}/{station}_{hour}{minute}-{digest:8}.jpg", "2026/11/21/rank_1200-00000000~2.jpg"},
		{"old/{name}", "old/2015/a~2.fits"}, {"{year2}{doy}/{id}", "26325/1795305598987-9dff50df08c63581"},
		{"{name}", "../x"}, {"{year}{doy}/{sequence}", "2026325/7"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, template, path string) {
		parsed, err := naming.Parse(template)
		if err != nil {
			return
		}
		in := Instrument{Name: camera, Station: "rank", Naming: parsed, Aliases: []*naming.Template{parsed}}
		for _, c := range Candidates(path, []Instrument{in}) {
			if (c.Name == "") == (c.Day == "") {
				t.Fatalf("candidate %+v", c)
			}
			if c.Name != "" && wire.CheckName(c.Name) != nil {
				t.Fatalf("name %q", c.Name)
			}
			r := record(noon, "x")
			if r.Path = Path(parsed, camera, "rank", r, 0); c.Matches(&r) && r.Path != path {
				t.Fatalf("an object with the path %q matches %q", r.Path, path)
			}
		}
	})
}
