// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/e2e/parts"
	"github.com/substorm/substorm/ingest-gateway/archive/pack"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site = "thule"
	day  = wire.Day("2026-11-18")
)

var (
	noon = time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)
	now  = noon.AddDate(0, 0, 2).Add(time.Hour)
)

// lab is a Site's archive on a real store, and a compactor of it.
type lab struct {
	t       *testing.T
	js      jetstream.JetStream
	store   *mortal
	parts   map[string]int
	number  uint64
	sent    map[string][]byte // by ID
	current map[string]string // instrument, by ID
}

// mortal is a store that does no more writes after some.
type mortal struct {
	objectstore.Store
	writes int // negative: without end
}

var errKilled = errors.New("killed")

func (m *mortal) write() error {
	if m.writes == 0 {
		return errKilled
	}
	m.writes--
	return nil
}

func (m *mortal) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objectstore.PutOptions) error {
	if err := m.write(); err != nil {
		return err
	}
	return m.Store.Put(ctx, key, body, size, opts)
}

func (m *mortal) Delete(ctx context.Context, key string) error {
	if err := m.write(); err != nil {
		return err
	}
	return m.Store.Delete(ctx, key)
}

type held struct{}

func (held) Check() error { return nil }

func newLab(t *testing.T) *lab {
	t.Helper()
	nats := parts.NATS(t, parts.NATSOptions{})
	l := &lab{t: t, js: nats.JetStream(t), store: &mortal{parts.MinIO(t, parts.MinIOOptions{}).Bucket(t, "archive"), -1}}
	parts.CreateSite(t, l.js, site)
	l.clear()
	return l
}

// clear empties the archive.
func (l *lab) clear() {
	l.t.Helper()
	for _, key := range l.keys("") {
		if err := l.store.Delete(l.t.Context(), key); err != nil {
			l.t.Fatal(err)
		}
	}
	l.parts, l.sent, l.current = map[string]int{}, map[string][]byte{}, map[string]string{}
}

func (l *lab) compactor() *Compactor {
	l.t.Helper()
	c := New(Config{
		Site: site, Gateway: "gateway-1", Incarnation: "two", JetStream: l.js, Store: l.store, Lease: held{},
		PackBelow: func(string) int64 { return 64 << 10 }, Grace: time.Minute, PackSize: 100 << 10, ScratchDir: l.t.TempDir(),
		Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	if err := c.load(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	return c
}

func (l *lab) keys(prefix string) []string {
	l.t.Helper()
	var keys []string
	for info, err := range l.store.List(l.t.Context(), prefix, "") {
		if err != nil {
			l.t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// object is what an instrument sent.
type object struct {
	instrument string
	at         time.Time
	body       string
}

func (l *lab) notice(o object) wire.Notice {
	digest := wire.Digest(sha256.Sum256([]byte(o.body)))
	return wire.Notice{Format: wire.Format, Site: site, Instrument: o.instrument, Record: wire.Record{
		Size: int64(len(o.body)), Digest: digest, MediaType: "text/plain", State: wire.StateCurrent,
		ReceivedAt: o.at, TimeSource: wire.TimeSourceReceived, Source: "192.0.2.7:40001", Gateway: "gateway-0", Incarnation: "one"}}
}

// pack stores a pack as a gateway does.
func (l *lab) pack(objects ...object) []wire.Notice {
	l.t.Helper()
	l.number++
	key := wire.PackKey(site, objects[0].at, "gateway-0", "one", l.number)
	var out bytes.Buffer
	w := pack.NewWriter(key, &out)
	var all []wire.Notice
	for _, o := range objects {
		n, err := w.Add(l.notice(o), strings.NewReader(o.body))
		if err != nil {
			l.t.Fatal(err)
		}
		all = append(all, n)
		l.sent[n.ID] = []byte(o.body)
	}
	if err := w.Close(); err != nil {
		l.t.Fatal(err)
	}
	if err := l.store.Put(l.t.Context(), key, bytes.NewReader(out.Bytes()), int64(out.Len()), objectstore.PutOptions{CreateOnly: true}); err != nil {
		l.t.Fatal(err)
	}
	return all
}

// own stores an object of its own.
func (l *lab) own(o object) wire.Notice {
	l.t.Helper()
	n := l.notice(o)
	n.Key = wire.RawKey(site, o.instrument, o.at, n.Digest)
	n.ID = n.Key
	l.sent[n.ID] = []byte(o.body)
	if err := l.store.Put(l.t.Context(), n.Key, strings.NewReader(o.body), n.Size, objectstore.PutOptions{CreateOnly: true}); err != nil {
		l.t.Fatal(err)
	}
	return n
}

// list writes a part for each instrument of the notices.
func (l *lab) list(notices ...wire.Notice) {
	l.t.Helper()
	by := map[string][]wire.Record{}
	for _, n := range notices {
		by[n.Instrument] = append(by[n.Instrument], n.Record)
		if n.State == wire.StateCurrent {
			l.current[n.ID] = n.Instrument
		} else {
			delete(l.current, n.ID)
		}
	}
	for instrument, records := range by {
		l.parts[instrument]++
		data, err := wire.Manifest{Header: wire.ManifestHeader{Site: site, Instrument: instrument, Day: day, Writer: "gateway-0", Incarnation: "one"},
			Records: records}.Encode()
		if err != nil {
			l.t.Fatal(err)
		}
		key := wire.ManifestPartKey(site, instrument, day, l.parts[instrument])
		if err := l.store.Put(l.t.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{CreateOnly: true}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// check reads every object that should be listed, where it is listed, and
// returns their records by ID.
func (l *lab) check() map[string]wire.Record {
	l.t.Helper()
	found := map[string]wire.Record{}
	for instrument := range l.parts {
		for r, err := range manifest.Day(l.t.Context(), l.store, site, instrument, day) {
			if err != nil {
				l.t.Fatal(err)
			}
			if _, twice := found[r.ID]; twice || l.current[r.ID] != instrument {
				l.t.Errorf("%s of %s is listed twice, or should not be", r.ID, instrument)
			}
			found[r.ID] = r
			l.read(r)
		}
	}
	if len(found) != len(l.current) {
		l.t.Errorf("%d of %d objects are listed", len(found), len(l.current))
	}
	return found
}

func (l *lab) read(r wire.Record) {
	l.t.Helper()
	place := objectstore.All
	if r.InPack() {
		place = objectstore.Range{Offset: r.Offset, Length: r.Length}
	}
	body, _, err := l.store.Get(l.t.Context(), r.Key, place)
	if err != nil {
		l.t.Errorf("%s: %v", r.ID, err)
		return
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil || !bytes.Equal(data, l.sent[r.ID]) {
		l.t.Errorf("%s at %s is %d bytes that are others than those sent, %v", r.ID, r.Key, len(data), err)
	}
}

// fill makes a day of two instruments: packs that they share, objects of their own.
func (l *lab) fill() (shared [][]wire.Notice, own []wire.Notice) {
	l.t.Helper()
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Second) }
	number := 0
	next := func(instrument string, size int) object {
		number++
		return object{instrument, at(number), strings.Repeat(fmt.Sprintf("%s %d ", instrument, number), size)}
	}
	for range 6 {
		var objects []object
		for i := range 20 {
			objects = append(objects, next([]string{"sonde", "camera"}[i%2], 1+i*20))
		}
		notices := l.pack(objects...)
		shared = append(shared, notices)
		l.list(notices...)
	}
	for range 5 {
		own = append(own, l.own(next("sonde", 10)))
	}
	own = append(own, l.own(next("camera", 20_000))) // too large
	l.list(own...)
	return shared, own
}
