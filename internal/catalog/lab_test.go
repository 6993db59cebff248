// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/e2e/parts"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site   = "thule"
	camera = "allsky-1"
	mag    = "mag-1"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// lab is a Site's archive, and what its archivist does in it: parts, versions, roots
// and entries.
type lab struct {
	t     *testing.T
	nats  *parts.NATSServer
	js    jetstream.JetStream
	store *watched
	kv    jetstream.KeyValue
	epoch string
	next  uint64
	books map[string]*book
}

// book is what the archivist knows of an instrument.
type book struct {
	entry wire.IndexEntry
	days  map[wire.Day]wire.RootDay
}

// watched notes what is asked of a store.
type watched struct {
	objectstore.Store
	mu   sync.Mutex
	asks []string
}

func (w *watched) note(ask string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asks = append(w.asks, ask)
}

// asked returns what was asked since the last call.
func (w *watched) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	asks := w.asks
	w.asks = nil
	return asks
}

func (w *watched) Get(ctx context.Context, key string, r objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	w.note("get " + key)
	return w.Store.Get(ctx, key, r)
}

func newLab(t *testing.T) *lab {
	t.Helper()
	nats := parts.NATS(t, parts.NATSOptions{})
	l := &lab{t: t, nats: nats, js: nats.JetStream(t), store: &watched{Store: parts.MinIO(t, parts.MinIOOptions{}).Bucket(t, "archive")},
		next: 1, books: map[string]*book{}}
	parts.CreateSite(t, l.js, site)
	var err error
	if l.kv, err = l.js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: wire.IndexBucket(site), Storage: jetstream.FileStorage, History: 1}); err != nil {
		t.Fatal(err)
	}
	if l.epoch, _, err = stream.Epoch(t.Context(), l.js, wire.NoticeStream(site)); err != nil {
		t.Fatal(err)
	}
	return l
}

// catalog returns one that runs.
func (l *lab) catalog(change func(*Config)) *Catalog {
	l.t.Helper()
	cfg := Config{Site: site, JetStream: l.js, Store: noLists{l.store, l.t}, Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}
	if change != nil {
		change(&cfg)
	}
	c := New(cfg)
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	l.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			l.t.Errorf("the catalog ended: %v", err)
		}
	})
	return c
}

// noLists is a store that a catalog never lists.
type noLists struct {
	*watched
	t *testing.T
}

func (n noLists) List(ctx context.Context, prefix, after string) iter.Seq2[objectstore.Info, error] {
	n.t.Errorf("the catalog lists %s", prefix)
	return n.watched.List(ctx, prefix, after)
}

func (n noLists) Folders(ctx context.Context, prefix string) iter.Seq2[string, error] {
	n.t.Errorf("the catalog lists the folders of %s", prefix)
	return n.watched.Folders(ctx, prefix)
}

// object is one that an instrument sent at a time, published under a path.
func object(at time.Time, path string) wire.Record {
	digest := wire.Digest(sha256.Sum256([]byte(fmt.Sprint(at, path))))
	key := wire.RawKey(site, camera, at, digest)
	return wire.Record{ID: key, Key: key, Path: path, Size: 100, Digest: digest, MediaType: "image/jpeg", State: wire.StateCurrent, ReceivedAt: at.UTC(),
		TimeSource: wire.TimeSourceReceived, Gateway: "gateway-0", Incarnation: "one"}
}

func observed(r wire.Record, from, to time.Time) wire.Record {
	r.ObservedFrom, r.ObservedTo = &from, &to
	return r
}

// announce publishes a notice of a record.
func (l *lab) announce(instrument string, records ...wire.Record) {
	l.t.Helper()
	for _, r := range records {
		m, err := stream.NoticeMessage(wire.Notice{Site: site, Instrument: instrument, Record: r}, "gateway-0")
		if err != nil {
			l.t.Fatal(err)
		}
		ack, err := l.js.PublishMsg(l.t.Context(), m)
		if err != nil {
			l.t.Fatal(err)
		}
		l.next = ack.Sequence + 1
	}
}

func (l *lab) book(instrument string) *book {
	if l.books[instrument] == nil {
		l.books[instrument] = &book{days: map[wire.Day]wire.RootDay{}}
	}
	return l.books[instrument]
}

// part closes a part, whose records need not have been announced.
func (l *lab) part(instrument string, records ...wire.Record) {
	l.t.Helper()
	b, day := l.book(instrument), wire.DayOf(records[0].ReceivedAt)
	number := 1
	for _, r := range b.days[day].Parts {
		number = r[1] + 1
	}
	if v := b.days[day].Version; v > 0 && number == 1 {
		number = 1000 * v
	}
	l.put(wire.ManifestPartKey(site, instrument, day, number), wire.ManifestHeader{Site: site, Instrument: instrument, Day: day}, records)
	l.know(instrument, day)
}

// compact replaces what is in effect of a day.
func (l *lab) compact(instrument string, day wire.Day) {
	l.t.Helper()
	files, err := manifest.List(l.t.Context(), l.store, site, instrument, day)
	if err != nil {
		l.t.Fatal(err)
	}
	var records []wire.Record
	for r, err := range manifest.Records(l.t.Context(), l.store, site, instrument, day) {
		if err != nil {
			l.t.Fatal(err)
		}
		records = append(records, r)
	}
	l.put(wire.ManifestVersionKey(site, instrument, day, files.NextVersion),
		wire.ManifestHeader{Site: site, Instrument: instrument, Day: day, Replaces: slices.Concat(files.Replaced, files.InEffect)}, records)
	l.know(instrument, day)
}

func (l *lab) put(key string, header wire.ManifestHeader, records []wire.Record) {
	l.t.Helper()
	data, err := wire.Manifest{Header: header, Records: records}.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	l.putBytes(key, data)
}

func (l *lab) putBytes(key string, data []byte) {
	l.t.Helper()
	if err := l.store.Put(l.t.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{CreateOnly: true}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) know(instrument string, day wire.Day) {
	l.t.Helper()
	d, err := manifest.Summarize(l.t.Context(), l.store, site, instrument, day)
	if err != nil {
		l.t.Fatal(err)
	}
	b := l.book(instrument)
	b.days[day] = d
	b.entry.Open = manifest.MergeDays(b.entry.Open, []wire.RootDay{d})
}

// root writes one, and removes the one before the last.
func (l *lab) root(instrument string) {
	l.t.Helper()
	b := l.book(instrument)
	var all []wire.RootDay
	for _, d := range b.days {
		all = append(all, d)
	}
	b.entry.Root++
	root := wire.Root{Header: wire.RootHeader{Site: site, Instrument: instrument, Number: b.entry.Root}, Days: manifest.MergeDays(nil, all)}
	data, err := root.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	l.putBytes(wire.RootKey(site, instrument, b.entry.Root), data)
	b.entry.Open = nil
	if err := l.store.Delete(l.t.Context(), wire.RootKey(site, instrument, b.entry.Root-2)); err != nil {
		l.t.Fatal(err)
	}
}

// flush writes the entries, and then the place that they know.
func (l *lab) flush() {
	l.t.Helper()
	for instrument, b := range l.books {
		value, err := b.entry.Encode()
		if err != nil {
			l.t.Fatal(err)
		}
		if _, err := l.kv.Put(l.t.Context(), instrument, value); err != nil {
			l.t.Fatal(err)
		}
	}
	value, err := wire.StreamCursor{Epoch: l.epoch, Next: l.next}.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.kv.Put(l.t.Context(), wire.IndexListedKey, value); err != nil {
		l.t.Fatal(err)
	}
}

// await waits until a condition holds.
func (l *lab) await(what string, holds func() bool) {
	l.t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("after a minute still not: %s", what)
		}
	}
}

// fresh returns how many notices lie over the index.
func (l *lab) fresh(c *Catalog) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.overlay.items)
}

// ready waits until a catalog knows what was flushed and announced.
func (l *lab) ready(c *Catalog) {
	l.t.Helper()
	l.await("the catalog knows what there is", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		state, err := l.kv.Get(context.Background(), wire.IndexListedKey)
		if err != nil {
			return false
		}
		listed, err := wire.DecodeStreamCursor(state.Value())
		if err != nil || c.index.listed != listed || c.overlay.epoch != l.epoch || c.overlay.next < l.next {
			return false
		}
		for instrument, b := range l.books {
			value, err := b.entry.Encode()
			if err != nil {
				return false
			}
			known, err := c.index.entries[instrument].Encode()
			if err != nil || !bytes.Equal(value, known) {
				return false
			}
		}
		return true
	})
}
