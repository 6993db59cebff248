// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/certificate"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/wire"
)

// mirrorFlags have a gateway receive from runs of mirrors.
var mirrorFlags = []string{"--mirror-listen", "127.0.0.1:0", "--pod-ip", "127.0.0.1"}

// pull is a partner that pulls from another Substorm.
func pull(partner, origin string) wire.MirrorEntry {
	return wire.MirrorEntry{
		Partner: partner, Direction: wire.MirrorPull, Continuous: &wire.MirrorContinuous{IntervalMillis: 60_000},
		HTTPS: &wire.MirrorHTTPS{URL: "https://archive.example.org", Source: wire.MirrorSourceSubstorm, Origin: origin},
	}
}

// pullInto is a partner that pulls from another archive into an instrument of the Site.
func pullInto(partner, instrument string) wire.MirrorEntry {
	e := pull(partner, "")
	e.HTTPS.Source, e.Paths = wire.MirrorSourceWebArchive, []wire.MirrorPath{{Pattern: "**", Instrument: instrument}}
	return e
}

// declareMirrors makes entries all partners of the registry.
func (l *lab) declareMirrors(t *testing.T, entries ...wire.MirrorEntry) int64 {
	t.Helper()
	l.revision++
	for _, e := range entries {
		e.Revision = l.revision
		l.putRecord(t, wire.RegistryMirrorKey(e.Partner), e)
	}
	l.mirrors = len(entries)
	l.complete(t)
	return l.revision
}

func (l *lab) putRecord(t *testing.T, key string, record any) {
	t.Helper()
	b, err := wire.Encode(record)
	if err != nil {
		t.Fatal(err)
	}
	l.putKey(t, key, b)
}

// declareGuest says what a run of a partner says of an instrument of another Site, and returns its name here.
func (l *lab) declareGuest(t *testing.T, partner, origin, instrument string) string {
	t.Helper()
	g := wire.GuestEntry{Origin: origin, Instrument: instrument, Partner: partner, SaidAt: time.Now().UTC(), MediaType: "image/png"}
	l.putRecord(t, wire.RegistryGuestKey(origin, instrument), g)
	return g.Name()
}

// mirrorRun is a run of a partner.
type mirrorRun struct {
	t       *testing.T
	partner string
	shown   *certificate.Ephemeral
}

// newRun returns a run that has reported its certificate to the Site.
func (l *lab) newRun(t *testing.T, partner string) *mirrorRun {
	t.Helper()
	r := unknownRun(t, partner)
	l.putRecord(t, wire.RegistryMoverKey(partner, wire.MirrorScheduled), wire.MoverEntry{Partner: partner, Kind: wire.MirrorScheduled, Certificate: r.shown.Digest()})
	return r
}

// unknownRun is a run that the Site does not know.
func unknownRun(t *testing.T, partner string) *mirrorRun {
	t.Helper()
	shown, err := certificate.NewEphemeral("run")
	if err != nil {
		t.Fatal(err)
	}
	return &mirrorRun{t, partner, shown}
}

// awaitMirror waits until a gateway says where runs of mirrors send.
func (l *lab) awaitMirror(t *testing.T, g *gateway) wire.MirrorListener {
	t.Helper()
	var at wire.MirrorListener
	await(t, "the gateway says where runs of mirrors send", func() (bool, string) {
		status, err := l.gatewayStatus(t, g.name)
		if err != nil || status.Mirror == nil || g.number("substorm_gateway_registry_revision") < float64(l.revision) {
			return false, "not yet"
		}
		at = *status.Mirror
		c, err := net.Dial("tcp", at.Address) // the report may be of a gateway before it
		if err != nil {
			return false, err.Error()
		}
		_ = c.Close()
		return true, ""
	})
	return at
}

func (r *mirrorRun) client(at wire.MirrorListener) *http.Client {
	return clientOf(r.t, r.shown.Client(at.Certificate))
}

func clientOf(t *testing.T, cfg *tls.Config) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true, DialContext: (&net.Dialer{}).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Timeout: patience, Transport: transport}
}

// put sends an object to an instrument, and again while the gateway may not have heard of the run or the guest.
func (r *mirrorRun) put(at wire.MirrorListener, instrument string, m wire.MirroredObject, object []byte) (reply reply) {
	r.t.Helper()
	client := r.client(at)
	await(r.t, "the gateway knows the run", func() (bool, string) {
		reply = putMirrored(r.t, client, at, r.partner, instrument, m, bytes.NewReader(object))
		return reply.status != http.StatusForbidden || reply.header.Get("Retry-After") == "", reply.String()
	})
	return reply
}

func putMirrored(t *testing.T, client *http.Client, at wire.MirrorListener, partner, instrument string, m wire.MirroredObject, body io.Reader) reply {
	t.Helper()
	header, err := m.Header()
	if err != nil {
		t.Fatal(err)
	}
	return askBy(client, http.MethodPut, "https://"+at.Address+wire.MirroredPath(partner, instrument), body, wire.HeaderRecord, header)
}

// mirrored says what the origin arctic knows of an object, which it received years ago.
func mirrored(object []byte, id string) wire.MirroredObject {
	received := time.Date(2021, 3, 17, 6, 30, 0, 123456789, time.UTC)
	from := received.Add(-time.Minute)
	return wire.MirroredObject{
		Origin: &wire.Origin{Site: "arctic", ID: "o/arctic/allsky-1/n/" + id}, Path: "2021/03/17/" + id, Size: int64(len(object)), Digest: sha256.Sum256(object),
		MediaType: "image/jpeg", ObservedFrom: &from, ReceivedAt: received, TimeSource: wire.TimeSourceName, Completeness: wire.CompletenessUnverified,
	}
}

// storeUnannounced has a gateway store an object, and keeps it from announcing it. JetStream is away then. A request of the
// gateway to JetStream before it stores may come too late: then another object is sent.
func (r *mirrorRun) storeUnannounced(l *lab, g *gateway, at wire.MirrorListener, guest string) (object []byte, m wire.MirroredObject) {
	r.t.Helper()
	for try := range 20 {
		object = random(uint64(1000+try), 300_000)
		m = mirrored(object, fmt.Sprintf("unannounced-%d.jpg", try))
		l.minio.Pause()
		answers := make(chan reply, 1)
		client := r.client(at)
		go func() { answers <- putMirrored(r.t, client, at, r.partner, guest, m, bytes.NewReader(object)) }()
		g.awaitUnsafe("1")
		l.nats.Pause()
		l.minio.Continue()
		isStored := false
		await(r.t, "the object is stored, or refused", func() (bool, string) {
			_, err := l.store.Head(r.t.Context(), m.Origin.ObjectID(l.site, guest, m.ReceivedAt, m.Digest))
			isStored = err == nil
			return isStored || len(answers) > 0, fmt.Sprint(err)
		})
		if isStored {
			return object, m
		}
		l.nats.Continue()
	}
	r.t.Fatal("no object was stored while JetStream was away")
	return nil, m
}

// compactByHand does with the day of mirrored objects what an archivist does: the first is in a pack, the second purged.
func (l *lab) compactByHand(t *testing.T, guest string, packed wire.Record, object []byte, purged, kept wire.Record) {
	t.Helper()
	files, err := manifest.List(t.Context(), l.store, l.site, guest, mirrorDay)
	if err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	key := wire.PackKey(l.site, packed.ReceivedAt, wire.ArchivistWriter, "0123456789abcdef", 1)
	w := pack.NewWriter(key, &data)
	n, err := w.Add(wire.Notice{Site: l.site, Instrument: guest, Record: packed}, bytes.NewReader(object))
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = l.store.Put(t.Context(), key, bytes.NewReader(data.Bytes()), int64(data.Len()), objectstore.PutOptions{CreateOnly: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	n.Key = key
	purged.State, purged.PurgedAt, purged.ChangedBy = wire.StatePurged, &purged.ReceivedAt, "anna"
	version, err := wire.Manifest{
		Header:  wire.ManifestHeader{Site: l.site, Instrument: guest, Day: mirrorDay, Replaces: files.InEffect, Writer: "test", Incarnation: "1"},
		Records: []wire.Record{n.Record, purged, kept},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.store.Put(t.Context(), wire.ManifestVersionKey(l.site, guest, mirrorDay, 1), bytes.NewReader(version), int64(len(version)), objectstore.PutOptions{CreateOnly: true}); err != nil {
		t.Fatal(err)
	}
}

// pulling is a gateway to which a run of a partner pulls: a guest of the Site arctic is declared.
func pulling(t *testing.T) (l *lab, g *gateway, at wire.MirrorListener, guest string, r *mirrorRun) {
	t.Helper()
	l = newLab(t)
	l.declareMirrors(t, pull("north", "arctic"))
	guest = l.declareGuest(t, "north", "arctic", "allsky-1")
	g = l.start(t, gatewayOptions{flags: mirrorFlags})
	g.awaitReady()
	return l, g, l.awaitMirror(t, g), guest, l.newRun(t, "north")
}
