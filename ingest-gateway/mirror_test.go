// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

// mirrorDay is on which mirrored objects of the tests were received.
const mirrorDay = wire.Day("2021-03-17")

// An object that is pulled from another Site is kept as that Site has it, once, and counted on the day on which it was
// received there.
func TestMirrored(t *testing.T) {
	t.Parallel()
	l, g, at, guest, r := pulling(t)
	objects := map[string][]byte{"small.jpg": random(1, 700), "parts.jpg": random(2, 40<<20), "empty.jpg": {}, "frame ☃.jpg": random(3, 100_000)}
	size := 0
	for name, object := range objects {
		size += len(object)
		location := r.put(at, guest, mirrored(object, name), object).wantReceipt(t, http.StatusCreated, object)
		if !strings.HasPrefix(location, "/o/hub/arctic_allsky-1/r/2021/03/17/") {
			t.Errorf("Location of %s is %s", name, location)
		}
		r.put(at, guest, mirrored(object, name), object).wantReceipt(t, http.StatusOK, object)
	}
	notices := l.noticesOf(t, guest)
	if len(notices) != len(objects) {
		t.Fatalf("%d notices of %d objects", len(notices), len(objects))
	}
	kept := l.stored(t, guest)
	for _, n := range notices {
		name := strings.TrimPrefix(n.Path, "2021/03/17/")
		object := objects[name]
		m := mirrored(object, name)
		id := m.Origin.ObjectID("hub", guest, m.ReceivedAt, m.Digest)
		want := wire.Record{
			ID: id, Key: id, Path: m.Path, Size: m.Size, Digest: m.Digest, MediaType: m.MediaType, State: wire.StateCurrent, ObservedFrom: m.ObservedFrom,
			ReceivedAt: m.ReceivedAt, TimeSource: m.TimeSource, Backfill: true, Completeness: m.Completeness, Origin: m.Origin,
			Source: n.Source, Port: n.Port, Gateway: "north-0", Incarnation: n.Incarnation,
		}
		if diff := cmp.Diff(want, n.Record); diff != "" || n.Port == 0 || n.Source == "" || n.CheckPlace() != nil {
			t.Errorf("%s is announced otherwise (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(n, kept[n.ID]); diff != "" {
			t.Errorf("%s says otherwise of itself in the bucket (-notice +bucket):\n%s", name, diff)
		}
		if digest, n := l.digestOf(t, n.Record); digest != sha256.Sum256(object) || n != int64(len(object)) {
			t.Errorf("in the bucket is another %s", name)
		}
	}
	l.awaitLedger(t, guest, wire.StepReceived, func(s wire.Totals) bool {
		return s.Objects == 4 && s.ObjectBytes == uint64(size) && s.Acknowledged == 4 && s.Unfinished[wire.CauseDuplicate] == 4 && len(s.Unfinished) == 1
	})
	l.awaitLedger(t, guest, wire.StepAnnounced, func(s wire.Totals) bool { return s.Objects == 4 && s.ObjectBytes == uint64(size) })
	kv, err := l.js.KeyValue(t.Context(), wire.LedgerBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	lister, err := kv.ListKeysFiltered(t.Context(), guest+".>")
	if err != nil {
		t.Fatal(err)
	}
	for key := range lister.Keys() {
		if _, day, _, _, err := wire.ParseLedgerKey(key); err != nil || day != mirrorDay {
			t.Errorf("counted under %s, %v", key, err)
		}
	}
	if n := g.number(`substorm_gateway_objects_total{instrument="` + guest + `"}`); n != 4 {
		t.Errorf("%v objects in the metrics", n)
	}
	if err := g.stop(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if status, err := l.gatewayStatus(t, g.name); err != nil || !status.Stopped || status.Mirror != nil {
		t.Errorf("the last report: %+v, %v", status, err)
	}
}

// An object that is pulled from an archive that is no Substorm becomes the Site's own, like an
// object that a sender sends.
func TestMirroredIntoOwnInstrument(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	camera := tcpInstrument("camera", 10001)
	camera.Gateway, camera.Listeners = "", nil // nothing else brings anything
	retired := tcpInstrument("retired", 10002)
	retired.Retired = true
	l.declare(t, camera, tcpInstrument("mag", 10003), tcpInstrument("sends", 10004), retired)
	into := pullInto("old", "camera")
	into.Paths = append(into.Paths, wire.MirrorPath{Pattern: "s/*", Instrument: "sends"}, wire.MirrorPath{Pattern: "r/*", Instrument: "retired"}, wire.MirrorPath{Pattern: "g/*", Instrument: "gone"})
	l.declareMirrors(t, into)
	g := l.start(t, gatewayOptions{flags: mirrorFlags})
	g.awaitReady()
	at := l.awaitMirror(t, g)
	r := l.newRun(t, "old")
	object, other := random(1, 5000), random(2, 5000)
	m := wire.MirroredObject{Path: "kev/2015/a.jpg", MediaType: "image/png"}
	r.put(at, "camera", m, object).wantReceipt(t, http.StatusCreated, object)
	r.put(at, "camera", m, object).wantReceipt(t, http.StatusOK, object)
	r.put(at, "camera", m, other).wantRefusal(t, http.StatusConflict, wire.CauseNameConflict)
	notices := l.noticesOf(t, "camera")
	if len(notices) != 1 {
		t.Fatalf("%d notices", len(notices))
	}
	if n := notices[0]; n.Name != m.Path || n.Origin != nil || n.MediaType != "image/png" || time.Since(n.ReceivedAt) > patience || n.Key != wire.NamedKey("hub", "camera", m.Path, 1) {
		t.Errorf("notice %+v", n)
	}
	if is := notices[0].Completeness; is != wire.CompletenessUnverified {
		t.Errorf("a file that its source may still write is %s", is)
	}

	for what, c := range map[string]struct {
		instrument string
		m          wire.MirroredObject
		object     []byte
		status     int
		cause      wire.Cause
	}{
		"an instrument that paths do not name": {"mag", m, object, 403, wire.CauseUnknownInstrument},
		"an instrument that has listeners":     {"sends", m, object, 403, wire.CauseUnknownInstrument},
		"a folder that is an object":           {"camera", wire.MirroredObject{Path: m.Path + "/b"}, other, 409, wire.CauseNameConflict},
		"an object that is a folder":           {"camera", wire.MirroredObject{Path: "kev"}, other, 409, wire.CauseNameConflict},
		"an origin":                            {"camera", mirrored(object, "x"), object, 403, wire.CauseUnknownInstrument},
		"a retired instrument":                 {"retired", m, object, 410, wire.CauseRetired},
		"another size":                         {"camera", wire.MirroredObject{Path: "b", Size: 4999}, object, 400, wire.CauseDigestMismatch},
		"another digest":                       {"camera", wire.MirroredObject{Path: "b", Digest: sha256.Sum256(other)}, object, 400, wire.CauseDigestMismatch},
		"nothing":                              {"camera", wire.MirroredObject{Path: "b"}, nil, 400, wire.CauseEmpty},
		"a path that is too long for a name":   {"camera", wire.MirroredObject{Path: strings.Repeat("n", wire.MaxSentName+1)}, object, 400, wire.CauseBadRequest},
	} {
		t.Log(what)
		r.put(at, c.instrument, c.m, c.object).wantRefusal(t, c.status, c.cause)
	}
	gone := putMirrored(t, r.client(at), at, "old", "gone", m, bytes.NewReader(object))
	if gone.wantRefusal(t, 403, wire.CauseUnknownInstrument); gone.header.Get("Retry-After") == "" {
		t.Error("an instrument that is not there yet is not worth another try")
	}
	l.awaitLedger(t, "camera", wire.StepReceived, func(s wire.Totals) bool {
		return s.Objects == 1 && s.Unfinished[wire.CauseDuplicate] == 1 && s.Unfinished[wire.CauseNameConflict] == 3 && s.Unfinished[wire.CauseDigestMismatch] == 2 &&
			s.Unfinished[wire.CauseEmpty] == 1 && s.Unfinished[wire.CauseBadRequest] == 1
	})
	l.awaitLedger(t, "camera", wire.StepAnnounced, func(s wire.Totals) bool { return s.Objects == 1 })
}

// A client that is no run of the partner, or that sends what the partner may not bring, gets an answer that
// says so, and nothing of it is kept.
func TestMirrorRefusals(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.declare(t, tcpInstrument("camera", 10001))
	push := pull("push", "south")
	push.Direction = wire.MirrorPush
	l.declareMirrors(t, pull("north", "arctic"), pull("south", "south"), push)
	guest := l.declareGuest(t, "north", "arctic", "allsky-1")
	other := l.declareGuest(t, "south", "south", "allsky-1")
	g := l.start(t, gatewayOptions{flags: mirrorFlags})
	g.awaitReady()
	at := l.awaitMirror(t, g)
	r := l.newRun(t, "north")
	object := random(1, 5000)
	m := mirrored(object, "a.jpg")
	r.put(at, guest, m, object).wantReceipt(t, http.StatusCreated, object)

	as := func(r *mirrorRun, partner, instrument string, m wire.MirroredObject) reply {
		t.Helper()
		return putMirrored(t, r.client(at), at, partner, instrument, m, bytes.NewReader(object))
	}
	unknown := as(unknownRun(t, "north"), "north", guest, m)
	if unknown.wantRefusal(t, 403, wire.CauseBadCertificate); unknown.header.Get("Retry-After") == "" {
		t.Errorf("a run that may be known soon is not told to try again: %v", unknown)
	}
	as(l.newRun(t, "south"), "north", guest, m).wantRefusal(t, 403, wire.CauseBadCertificate)
	as(l.newRun(t, "push"), "push", other, m).wantRefusal(t, 403, wire.CauseUnknownSource)
	as(r, "nobody", guest, m).wantRefusal(t, 403, wire.CauseUnknownSource)

	fromSouth, nowhere, yet := m, m, m
	fromSouth.Origin = &wire.Origin{Site: "south", ID: m.Origin.ID}
	nowhere.Origin = nil
	for what, c := range map[string]struct {
		instrument string
		m          wire.MirroredObject
	}{
		"an instrument of another origin": {other, m}, "an object of another origin": {guest, fromSouth}, "no origin": {guest, nowhere},
		"an instrument of the Site": {"camera", m}, "an instrument of the Site without an origin": {"camera", nowhere},
	} {
		t.Log(what)
		if a := as(r, "north", c.instrument, c.m); a.header.Get("Retry-After") != "" {
			t.Errorf("%s is worth another try: %v", what, a)
		} else {
			a.wantRefusal(t, 403, wire.CauseUnknownInstrument)
		}
	}
	if a := as(r, "north", "arctic_mag-1", yet); a.header.Get("Retry-After") == "" {
		t.Errorf("a guest that may be known soon: %v", a)
	}

	ahead, long, upwards := m, m, m
	ahead.ReceivedAt = time.Now().Add(25 * time.Hour)
	long.Origin = &wire.Origin{Site: "arctic", ID: strings.Repeat("☃", 300)}
	upwards.Path = "../a"
	for _, m := range []wire.MirroredObject{ahead, long, upwards} {
		as(r, "north", guest, m).wantRefusal(t, 400, wire.CauseBadRequest)
	}
	lies := mirrored(random(2, 5000), "lies.jpg")
	as(r, "north", guest, lies).wantRefusal(t, 400, wire.CauseDigestMismatch)
	// An origin that was installed again gives the ID to other bytes: they are another object.
	changed := mirrored(object[1:], "a.jpg")
	putMirrored(t, r.client(at), at, "north", guest, changed, bytes.NewReader(object[1:])).wantReceipt(t, 201, object[1:])
	url := "https://" + at.Address
	askBy(r.client(at), http.MethodPut, url+wire.MirroredPath("north", guest), bytes.NewReader(object)).wantRefusal(t, 400, wire.CauseBadRequest)
	askBy(r.client(at), http.MethodGet, url+wire.MirroredPath("north", guest), nil).wantRefusal(t, 405, wire.CauseBadRequest)
	askBy(r.client(at), http.MethodPut, url+"/in/camera/a", bytes.NewReader(object)).wantRefusal(t, 403, wire.CauseUnknownInstrument)

	bare := r.shown.Client(at.Certificate)
	bare.Certificates = nil
	if a := putMirrored(t, clientOf(t, bare), at, "north", guest, m, bytes.NewReader(object)); a.err == nil {
		t.Errorf("without a certificate: %v", a)
	}
	plain := &http.Client{Timeout: patience}
	if resp, err := plain.Get("http://" + at.Address); err == nil {
		if resp.Body.Close(); resp.StatusCode == http.StatusOK {
			t.Errorf("over plain HTTP: %s", resp.Status)
		}
	}
	old := r.shown.Client(at.Certificate)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if a := putMirrored(t, clientOf(t, old), at, "north", guest, m, bytes.NewReader(object)); a.err == nil {
		t.Errorf("over TLS 1.2: %v", a)
	}

	if n := len(l.noticesOf(t, guest)); n != 2 || len(l.notices(t)) != 2 {
		t.Errorf("%d notices, %d in all", n, len(l.notices(t)))
	}
	if keys := l.keys(t, "o/"); len(keys) != 2 {
		t.Errorf("in the bucket: %v", keys)
	}
	l.awaitLedger(t, guest, wire.StepReceived, func(s wire.Totals) bool {
		return s.Objects == 2 && s.Unfinished[wire.CauseBadRequest] == 2 && s.Unfinished[wire.CauseDigestMismatch] == 1
	})
	l.awaitLedger(t, wire.UnknownInstrument, wire.StepReceived, func(s wire.Totals) bool {
		return s.Unfinished[wire.CauseBadCertificate] >= 3 && s.Unfinished[wire.CauseUnknownSource] == 2 && s.Unfinished[wire.CauseUnknownInstrument] == 7 &&
			s.Unfinished[wire.CauseBadRequest] == 2 && s.Unfinished[wire.CauseTLSHandshake] >= 2
	})
}

// A body that ends in the middle, or is not of the stated size: nothing is kept, and the rest of the run continues.
func TestMirroredBodyIsCut(t *testing.T) {
	t.Parallel()
	l, _, at, guest, r := pulling(t)
	first := random(1, 100)
	r.put(at, guest, mirrored(first, "first.jpg"), first).wantReceipt(t, 201, first)
	for _, size := range []int{5000, 30 << 20} {
		object := random(uint64(size), size)
		cut := io.MultiReader(bytes.NewReader(object[:size/2]), broken{})
		if a := putMirrored(t, r.client(at), at, "north", guest, mirrored(object, "cut.jpg"), cut); a.err == nil {
			t.Errorf("%d bytes that were cut: %v", size, a)
		}
	}
	l.awaitLedger(t, guest, wire.StepReceived, func(s wire.Totals) bool { return s.Objects == 1 && s.Unfinished[wire.CauseReset] == 2 })
	object := random(5000, 5000)
	r.put(at, guest, mirrored(object, "cut.jpg"), object).wantReceipt(t, 201, object)
	await(t, "nothing is left of what was cut", func() (bool, string) {
		keys := l.keys(t, "")
		for _, key := range keys {
			if strings.HasPrefix(key, "staging/") {
				return false, key
			}
		}
		return len(l.keys(t, "o/")) == 2, strings.Join(keys, " ")
	})
}

// broken is a body that ends with an error.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the source broke off") }

// An object that is not under its own key may be stored all the same: in a pack, since its day was compacted, or as one that
// was purged. An object that the store lost is stored again.
func TestMirroredStands(t *testing.T) {
	t.Parallel()
	l, _, at, guest, r := pulling(t)
	names := []string{"packed.jpg", "purged.jpg", "lost.jpg"}
	objects := map[string][]byte{}
	records := map[string]wire.Record{}
	for i, name := range names {
		objects[name] = random(uint64(i), 1000+i)
		r.put(at, guest, mirrored(objects[name], name), objects[name]).wantReceipt(t, 201, objects[name])
	}
	for _, n := range l.noticesOf(t, guest) {
		l.awaitListed(t, n)
		records[strings.TrimPrefix(n.Path, "2021/03/17/")] = n.Record
	}
	l.archivist.Kill()
	l.compactByHand(t, guest, records["packed.jpg"], objects["packed.jpg"], records["purged.jpg"], records["lost.jpg"])
	for _, record := range records {
		if err := l.store.Delete(t.Context(), record.Key); err != nil {
			t.Fatal(err)
		}
	}

	other := l.start(t, gatewayOptions{name: "north-1", flags: mirrorFlags}) // which has not read the day before
	other.awaitReady()
	at = l.awaitMirror(t, other)
	for _, name := range names {
		r.put(at, guest, mirrored(objects[name], name), objects[name]).wantReceipt(t, 200, objects[name])
		_, err := l.store.Head(t.Context(), records[name].Key)
		if lost := name == "lost.jpg"; lost != (err == nil) {
			t.Errorf("%s under its key: %v", name, err)
		}
	}
	changed := random(9, 500)
	r.put(at, guest, mirrored(changed, "packed.jpg"), changed).wantReceipt(t, 201, changed)
	fresh := random(10, 500)
	r.put(at, guest, mirrored(fresh, "fresh.jpg"), fresh).wantReceipt(t, 201, fresh)
	if n := other.number(`substorm_gateway_restored_total{instrument="` + guest + `"}`); n != 1 {
		t.Errorf("%v are restored", n)
	}
	if n := len(l.noticesOf(t, guest)); n != 5 {
		t.Errorf("%d notices", n)
	}
	l.awaitLedger(t, guest, wire.StepReceived, func(s wire.Totals) bool {
		return s.Objects == 5 && s.Unfinished[wire.CauseDuplicate] == 3
	})
}
