// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// The names of guests are distinguished from those of the Site's own instruments, and are parsed as they are written.
func TestGuestName(t *testing.T) {
	t.Parallel()
	name := GuestName("arctic", "allsky-1")
	if origin, instrument, is := ParseGuestName(name); !is || origin != "arctic" || instrument != "allsky-1" || !IsGuest(name) {
		t.Errorf("%q reads as %q, %q, %t", name, origin, instrument, is)
	}
	for _, own := range []string{"allsky-1", "", UnknownInstrument, NothingSelected, "_", "arctic_"} {
		if IsGuest(own) {
			t.Errorf("%q is taken for a guest", own)
		}
	}
}

// An object of a guest has one ID, which follows from where it comes from and from its bytes.
func TestGuestObjectID(t *testing.T) {
	t.Parallel()
	guest := GuestName("arctic", "allsky-1")
	digest := sampleDigest("frame")
	o := Origin{Site: "arctic", ID: "o/arctic/allsky-1/n/a.jpg"}
	id := o.ObjectID("thule", guest, sampleTime, digest)
	if id != o.ObjectID("thule", guest, sampleTime, digest) || !strings.HasPrefix(id, RawPrefix("thule", guest, DayOf(sampleTime))) {
		t.Errorf("the ID is %s", id)
	}
	other := Origin{Site: "arctic", ID: "o/arctic/allsky-1/n/b.jpg"}
	if other.ObjectID("thule", guest, sampleTime, digest) == id {
		t.Error("two objects have one ID")
	}
	if o.ObjectID("thule", guest, sampleTime, sampleDigest("other")) == id {
		t.Error("other bytes under the ID of an object have its ID here")
	}
	if at, is := ReceivedAtOfKey(id); !is || at.UnixMilli() != sampleTime.UnixMilli() {
		t.Errorf("its key says %v", at)
	}
	if site, instrument, err := InstrumentOfKey(id); err != nil || site != "thule" || instrument != guest {
		t.Errorf("its key is of %q, %q: %v", site, instrument, err)
	}
}

func TestGuestKeys(t *testing.T) {
	t.Parallel()
	if name, is := ParseRegistryGuestKey(RegistryGuestKey("arctic", "allsky-1")); !is || name != "arctic_allsky-1" {
		t.Errorf("%q, %t", name, is)
	}
	for _, key := range []string{"guest.", "guest.arctic", "guest.arctic_cam.1", "guest.arctic.cam_1", "guest.arctic.a/../../b", "guest.arctic.CAM", "guest..allsky-1", "guest.arctic.", RegistryInstrumentKey("arctic_allsky-1"), RegistryMoverKey("arctic", MirrorManual)} {
		if name, is := ParseRegistryGuestKey(key); is {
			t.Errorf("%q is taken for guest %q", key, name)
		}
	}
	if name, is := ParseRegistryMoverKey(RegistryMoverKey("arctic", MirrorManual)); !is || name != "arctic."+MirrorManual {
		t.Errorf("%q, %t", name, is)
	}
	for _, key := range []string{"mover.", "mover.arctic", "mover..manual", "mover.arctic.", RegistryGuestKey("arctic", "allsky-1")} {
		if name, is := ParseRegistryMoverKey(key); is {
			t.Errorf("%q is taken for mover %q", key, name)
		}
	}
	for _, key := range []string{
		ManifestPartKey("thule", "arctic_allsky-1", "2026-11-21", 1), ManifestVersionKey("thule", "arctic_allsky-1", "2026-11-21", 2),
	} {
		if f, err := ParseManifestKey(key); err != nil || f.Instrument != "arctic_allsky-1" {
			t.Errorf("%q reads as %+v, %v", key, f, err)
		}
	}
	if f, err := ParseChangesKey(ChangesKey("thule", "arctic_allsky-1", "2026-11-21", 3, Digest{1})); err != nil || f.Instrument != "arctic_allsky-1" {
		t.Errorf("changes read as %+v, %v", f, err)
	}
	if _, instrument, _, err := ParseRootKey(RootKey("thule", "arctic_allsky-1", 4)); err != nil || instrument != "arctic_allsky-1" {
		t.Errorf("a root reads as of %q, %v", instrument, err)
	}
}

// Notices of guests have a subject of their own, which a consumer that selects instruments is not given; requests have a subject with the
// origin as a token.
func TestGuestSubjects(t *testing.T) {
	t.Parallel()
	n := sampleNotice(sampleMirroredRecord(), "arctic_allsky-1")
	if s := n.Subject(); s != "notice.thule.arctic_allsky-1.mirrored" {
		t.Errorf("its subject is %s", s)
	}
	site, instrument, backfill, err := ParseNoticeSubject(n.Subject())
	if err != nil || site != "thule" || instrument != "arctic_allsky-1" || !backfill {
		t.Errorf("it reads as %q, %q, %t, %v", site, instrument, backfill, err)
	}
	if _, _, _, err := ParseNoticeSubject("notice.thule.allsky-1.mirrored"); !errors.Is(err, ErrMalformed) {
		t.Errorf("a mirrored notice of the Site's own instrument: %v", err)
	}
	if s := RequestSubject("thule", "arctic_allsky-1"); s != "request.thule.arctic.allsky-1" {
		t.Errorf("requests: %s", s)
	}
	if s := RequestSubject("thule", "allsky-1"); s != "request.thule.allsky-1" {
		t.Errorf("requests of its own instrument: %s", s)
	}
}

// A guest takes nothing from its origin that is the Site's to say.
func TestGuestAsInstrument(t *testing.T) {
	t.Parallel()
	g := sampleGuest()
	e := g.Entry()
	if e.Instrument != "arctic_allsky-1" || e.Origin != "arctic" || e.Gateway != "" || len(e.Listeners) > 0 || !e.Maintenance || e.PackBelow <= 0 || e.Acknowledge != "Stored" {
		t.Errorf("%+v", e)
	}
	if e.Access == nil || len(e.Access.Readers) > 0 || e.Access.Archive != g.Access.Archive || g.Access.Readers == nil {
		t.Errorf("access %+v of %+v", e.Access, g.Access)
	}
}

// Entries of guests are shown to all readers: they hold what an Instrument could declare, and everything else is refused. A run that
// receives something else leaves it out.
func TestGuestsAreChecked(t *testing.T) {
	t.Parallel()
	deep := int32(-12000)
	names := map[string]func(*GuestEntry){
		"no origin":                 func(e *GuestEntry) { e.Origin = "" },
		"no partner":                func(e *GuestEntry) { e.Partner = "" },
		"an origin that is a guest": func(e *GuestEntry) { e.Origin, e.Instrument = "arctic_cam", "1" },
		"a guest's guest":           func(e *GuestEntry) { e.Instrument = "cam_1" },
		"a name upwards":            func(e *GuestEntry) { e.Instrument = "a/../b" },
		"a long name":               func(e *GuestEntry) { e.Instrument = strings.Repeat("a", 64) },
	}
	texts := map[string]func(*GuestEntry){
		"a licence that ends a header": func(e *GuestEntry) { e.Rights.License = "x.html>; rel=\"license\", <https://evil.example/x.css" },
		"a long licence":               func(e *GuestEntry) { e.Rights.License = strings.Repeat("a", 65) },
		"a DOI that is none":           func(e *GuestEntry) { e.Rights.DOI = "10.5281/a>b" },
		"a long citation":              func(e *GuestEntry) { e.Rights.Citation = strings.Repeat("ä", 1001) },
		"a long credit":                func(e *GuestEntry) { e.Rights.Credit = strings.Repeat("x", 301) },
		"credit in two lines":          func(e *GuestEntry) { e.Rights.Credit = "a\r\nb" },
		"a type with markup":           func(e *GuestEntry) { e.About.Type = "<b>" },
		"a latitude beyond the pole":   func(e *GuestEntry) { e.About.Latitude = "91" },
		"a longitude that is none":     func(e *GuestEntry) { e.About.Longitude = "east" },
		"below all seas":               func(e *GuestEntry) { e.About.AltitudeMeters = &deep },
		"a contact that rings":         func(e *GuestEntry) { e.About.Contact = "ring \x07 me" },
		"a station with a space":       func(e *GuestEntry) { e.Station = "a b" },
		"no media type":                func(e *GuestEntry) { e.MediaType = "text/html; charset=utf-8" },
		"access for nobody knows whom": func(e *GuestEntry) { e.Access.Archive = "Members" },
		"an embargo that ended before": func(e *GuestEntry) { e.Access.EmbargoMillis = -1 },
	}
	fresh := func() GuestEntry {
		e := sampleGuest()
		access, rights, about := *e.Access, *e.Rights, *e.About
		e.Access, e.Rights, e.About = &access, &rights, &about
		return e
	}
	refused := func(what string, e GuestEntry) {
		t.Helper()
		data, err := Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode[GuestEntry](data); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, spoil := range names {
		e := fresh()
		spoil(&e)
		refused(what, e)
		if err := e.CheckName(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: its name is said to be one: %v", what, err)
		}
	}
	for what, spoil := range texts {
		e := fresh()
		spoil(&e)
		refused(what, e)
		said := e.generation()
		plain, lacks := e.Plain()
		if err := plain.check(); err != nil || e.generation() != said {
			t.Errorf("%s: what is left of it: %v", what, err)
		}
		if inLines := what == "credit in two lines" || what == "a contact that rings"; inLines == (len(lacks) > 0) {
			t.Errorf("%s: it lacks %v", what, lacks)
		}
	}
	e := fresh()
	e.Rights.Credit, e.Access.Archive = "Image:\n  Thule", "Members"
	plain, lacks := e.Plain()
	if plain.Rights.Credit != "Image: Thule" || plain.Access.Archive != AccessRestricted || plain.Access.Live != AccessRestricted || len(lacks) != 1 {
		t.Errorf("%+v, %+v lacks %v", plain.Rights, plain.Access, lacks)
	}
}

func TestMirroredPath(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"allsky-1", "arctic_allsky-1"} {
		if partner, instrument, ok := ParseMirroredPath(MirroredPath("uni", name)); !ok || partner != "uni" || instrument != name {
			t.Errorf("%q reads as %q, %q, %t", name, partner, instrument, ok)
		}
	}
	for _, path := range []string{
		"", "/mirror", "/mirror/", "/mirror/uni", "/mirror/uni/", "/mirror//a", "/mirror/uni/a/b", "/mirror/u.ni/a", "/mirror/uni/a_b_c", "/mirror/uni/_a", "/mirror/uni/a_",
		"/in/uni/a", "/mirror/uni/..", "/mirror/uni/A",
	} {
		if partner, instrument, ok := ParseMirroredPath(path); ok {
			t.Errorf("%q reads as %q, %q", path, partner, instrument)
		}
	}
}

// A run describes an object in a header, which is refused if the object could not be listed.
func TestMirroredObject(t *testing.T) {
	t.Parallel()
	header, err := sampleMirrored().Header()
	if err != nil || !isASCII([]byte(header)) || strings.ContainsAny(header, "\r\n") {
		t.Fatalf("%q, %v", header, err)
	}
	for name, spoil := range map[string]func(*MirroredObject){
		"no path":                   func(m *MirroredObject) { m.Path = "" },
		"a path upwards":            func(m *MirroredObject) { m.Path = "../a" },
		"a negative size":           func(m *MirroredObject) { m.Size = -1 },
		"a negative version":        func(m *MirroredObject) { m.Version = -1 },
		"a long media type":         func(m *MirroredObject) { m.MediaType = strings.Repeat("a", 128) },
		"a media type in two lines": func(m *MirroredObject) { m.MediaType = "text/plain\r\nX-A: b" },
		"an origin without a Site":  func(m *MirroredObject) { m.Origin.Site = "" },
		"an origin without an ID":   func(m *MirroredObject) { m.Origin.ID = "" },
		"an ID in two lines":        func(m *MirroredObject) { m.Origin.ID = "a\nb" },
		"never received":            func(m *MirroredObject) { m.ReceivedAt = time.Time{} },
		"observed by nobody's time": func(m *MirroredObject) { m.TimeSource = "" },
		"no digest":                 func(m *MirroredObject) { m.Digest = Digest{} },
		"received before 1970":      func(m *MirroredObject) { m.ReceivedAt = time.Unix(0, -1) },
		"received in the year 1":    func(m *MirroredObject) { m.ReceivedAt = time.Time{}.Add(time.Second) },
		"received after all keys":   func(m *MirroredObject) { m.ReceivedAt = time.UnixMilli(1e13) },
		"a source that is none":     func(m *MirroredObject) { m.TimeSource = "<script>" },
		"neither whole nor not":     func(m *MirroredObject) { m.Completeness = "perhaps" },
	} {
		m := sampleMirrored()
		spoil(&m)
		header, err := m.Header()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseMirroredObject(header); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	header, err = MirroredObject{Path: "old/a.jpg"}.Header()
	if err != nil || header != `{"format":1,"path":"old/a.jpg"}` {
		t.Errorf("%s, %v", header, err)
	}
	if m, err := ParseMirroredObject(header); err != nil || m.Path != "old/a.jpg" {
		t.Errorf("%+v, %v", m, err)
	}
}

// The objects of guests have the origin that is in their name, and others none.
func TestPlaceOfMirrored(t *testing.T) {
	t.Parallel()
	guest := sampleNotice(sampleMirroredRecord(), "arctic_allsky-1")
	if err := guest.CheckPlace(); err != nil {
		t.Error(err)
	}
	packed := guest
	packed.Key, packed.Offset, packed.Length = PackKey("thule", sampleTime, ArchivistWriter, "0123456789abcdef", 1), 1536, guest.Size
	if err := packed.CheckPlace(); err != nil {
		t.Errorf("in a pack: %v", err)
	}
	for name, spoil := range map[string]func(*Notice){
		"no origin":               func(n *Notice) { n.Origin = nil },
		"another origin":          func(n *Notice) { n.Origin = &Origin{Site: "other", ID: n.Origin.ID} },
		"an origin without an ID": func(n *Notice) { n.Origin = &Origin{Site: "arctic"} },
		"the Site's own": func(n *Notice) {
			raw := sampleRaw()
			raw.Origin = n.Origin
			n.Instrument, n.Record = "allsky-1", raw
		},
		"where its origin has it": func(n *Notice) { n.ID, n.Key = "o/arctic/allsky-1/n/a", "o/arctic/allsky-1/n/a" },
	} {
		n := guest
		spoil(&n)
		if err := n.CheckPlace(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
