// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/pack"
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

// lab is a Site's archive, and a compactor of it.
type lab struct {
	*manifesttest.Archive
	parts   map[string]int
	number  uint64
	sent    map[string][]byte // by ID
	current map[string]string // instrument, by ID
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Archive: manifesttest.New(t, site)}
	l.clear()
	return l
}

// clear empties the archive.
func (l *lab) clear() {
	l.Helper()
	l.Clear()
	l.parts, l.sent, l.current = map[string]int{}, map[string][]byte{}, map[string]string{}
}

func (l *lab) compactor() *Compactor {
	l.Helper()
	deleter := deletion.New(deletion.Config{
		Base:    holder.Base{Site: site, Pod: "gateway-1", Incarnation: "two", Store: l.Store, Lease: manifesttest.Lease{Store: l.Store}, Log: slog.New(slog.DiscardHandler)},
		Metrics: deletion.NewMetrics(prometheus.NewRegistry()),
	})
	c := New(Config{
		Base:    holder.Base{Site: site, Pod: "gateway-1", Incarnation: "two", JetStream: l.JetStream, Store: l.Store, Lease: manifesttest.Lease{Store: l.Store}, Log: slog.New(slog.DiscardHandler)},
		Deleter: deleter, Agree: func(context.Context, time.Time) error { return nil }, // tests have days of their own
		PackBelow: func(string) int64 { return 64 << 10 }, Grace: time.Minute, PackSize: 100 << 10, ScratchDir: l.TempDir(), Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	if err := c.load(l.Context()); err != nil {
		l.Fatal(err)
	}
	return c
}

// object is what an instrument sent.
type object struct {
	instrument string
	at         time.Time
	body       string
}

func (l *lab) notice(o object) wire.Notice {
	digest := wire.Digest(sha256.Sum256([]byte(o.body)))
	return wire.Notice{Site: site, Instrument: o.instrument, Record: wire.Record{
		Size: int64(len(o.body)), Digest: digest, MediaType: "text/plain", State: wire.StateCurrent,
		ReceivedAt: o.at, TimeSource: wire.TimeSourceReceived, Source: "192.0.2.7:40001", Gateway: "gateway-0", Incarnation: "one"}}
}

// pack stores a pack as a gateway does.
func (l *lab) pack(objects ...object) []wire.Notice {
	l.Helper()
	return l.packOf(func(wire.Notice) string { return "" }, objects...)
}

// packOf stores a pack of members with these IDs; an empty one follows from the place.
func (l *lab) packOf(id func(wire.Notice) string, objects ...object) []wire.Notice {
	l.Helper()
	l.number++
	key := wire.PackKey(site, objects[0].at, "gateway-0", "one", l.number)
	var out bytes.Buffer
	w := pack.NewWriter(key, &out)
	var all []wire.Notice
	for _, o := range objects {
		n := l.notice(o)
		n.ID = id(n)
		n, err := w.Add(n, strings.NewReader(o.body))
		if err != nil {
			l.Fatal(err)
		}
		all = append(all, n)
		l.sent[n.ID] = []byte(o.body)
	}
	if err := w.Close(); err != nil {
		l.Fatal(err)
	}
	l.Put(key, out.Bytes())
	return all
}

// own stores an object of its own.
func (l *lab) own(o object) wire.Notice {
	l.Helper()
	n := l.notice(o)
	n.Key = wire.RawKey(site, o.instrument, o.at, n.Digest)
	n.ID = n.Key
	l.sent[n.ID] = []byte(o.body)
	l.Put(n.Key, []byte(o.body))
	return n
}

// list writes a part for each instrument of the notices.
func (l *lab) list(notices ...wire.Notice) {
	l.Helper()
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
		l.PutPart(instrument, day, l.parts[instrument], records...)
	}
}

// check reads every object that should be listed, where it is listed, and
// returns their records by ID.
func (l *lab) check() map[string]wire.Record {
	l.Helper()
	found := map[string]wire.Record{}
	for instrument := range l.parts {
		for r, err := range manifest.Day(l.Context(), l.Store, site, instrument, day) {
			if err != nil {
				l.Fatal(err)
			}
			if _, twice := found[r.ID]; twice || l.current[r.ID] != instrument {
				l.Errorf("%s of %s is listed twice, or should not be", r.ID, instrument)
			}
			found[r.ID] = r
			l.read(r)
		}
	}
	if len(found) != len(l.current) {
		l.Errorf("%d of %d objects are listed", len(found), len(l.current))
	}
	return found
}

func (l *lab) read(r wire.Record) {
	l.Helper()
	place := objectstore.All
	if r.InPack() {
		place = objectstore.Range{Offset: r.Offset, Length: r.Length}
	}
	body, _, err := l.Store.Get(l.Context(), r.Key, place)
	if err != nil {
		l.Errorf("%s: %v", r.ID, err)
		return
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil || !bytes.Equal(data, l.sent[r.ID]) {
		l.Errorf("%s at %s is %d bytes that are others than those sent, %v", r.ID, r.Key, len(data), err)
	}
}

// fill makes a day of two instruments: packs that they share, objects of their own.
func (l *lab) fill() (shared [][]wire.Notice, own []wire.Notice) {
	l.Helper()
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

// interrupted is a store that calls a function before the first read of a key, or the nth
// list of a prefix.
type interrupted struct {
	objectstore.Store
	key  string
	list string
	nth  int
	then func()
	once sync.Once
}

func (s *interrupted) List(ctx context.Context, prefix, after string) iter.Seq2[objectstore.Info, error] {
	if prefix == s.list {
		if s.nth--; s.nth == 0 {
			s.once.Do(s.then)
		}
	}
	return s.Store.List(ctx, prefix, after)
}

func (s *interrupted) Get(ctx context.Context, key string, r objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	if key == s.key {
		s.once.Do(s.then)
	}
	return s.Store.Get(ctx, key, r)
}
