// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
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
	*manifesttest.Archive
	kv    jetstream.KeyValue
	known map[string]*told
}

// told is what the archivist knows of an instrument.
type told struct {
	entry wire.IndexEntry
	days  map[wire.Day]wire.RootDay
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Archive: manifesttest.New(t, site), known: map[string]*told{}}
	l.kv = l.KV(wire.IndexBucket(site))
	return l
}

// catalog returns one that runs.
func (l *lab) catalog(change func(*Config)) *Catalog {
	l.Helper()
	cfg := Config{Site: site, JetStream: l.JetStream, Store: noLists{l.Store, l.TB}, Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}
	if change != nil {
		change(&cfg)
	}
	c := New(cfg)
	ctx, cancel := context.WithCancel(l.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	l.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			l.Errorf("the catalog ended: %v", err)
		}
	})
	return c
}

// noLists is a store that a catalog never lists.
type noLists struct {
	*manifesttest.Store
	t testing.TB
}

func (n noLists) List(ctx context.Context, prefix, after string) iter.Seq2[objectstore.Info, error] {
	n.t.Errorf("the catalog lists %s", prefix)
	return n.Store.List(ctx, prefix, after)
}

func (n noLists) Folders(ctx context.Context, prefix string) iter.Seq2[string, error] {
	n.t.Errorf("the catalog lists the folders of %s", prefix)
	return n.Store.Folders(ctx, prefix)
}

// object is an object that an instrument sent at a time, published under a path.
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

func (l *lab) told(instrument string) *told {
	if l.known[instrument] == nil {
		l.known[instrument] = &told{days: map[wire.Day]wire.RootDay{}}
	}
	return l.known[instrument]
}

// part closes a part, whose records need not have been announced.
func (l *lab) part(instrument string, records ...wire.Record) {
	l.Helper()
	b, day := l.told(instrument), wire.DayOf(records[0].ReceivedAt)
	number := 1
	for _, r := range b.days[day].Parts {
		number = r[1] + 1
	}
	if v := b.days[day].Version; v > 0 && number == 1 {
		number = 1000 * v
	}
	l.PutPart(instrument, day, number, records...)
	l.know(instrument, day)
}

// compact replaces what is in effect of a day.
func (l *lab) compact(instrument string, day wire.Day) {
	l.Helper()
	l.Compact(instrument, day)
	l.know(instrument, day)
}

func (l *lab) know(instrument string, day wire.Day) {
	l.Helper()
	d, err := manifest.Summarize(l.Context(), l.Store, site, instrument, day)
	if err != nil {
		l.Fatal(err)
	}
	b := l.told(instrument)
	b.days[day] = d
	b.entry.Open = manifest.MergeDays(b.entry.Open, []wire.RootDay{d})
}

// root writes one, and removes the one before the last.
func (l *lab) root(instrument string) {
	l.Helper()
	b := l.told(instrument)
	var all []wire.RootDay
	for _, d := range b.days {
		all = append(all, d)
	}
	b.entry.Root++
	root := wire.Root{Header: wire.RootHeader{Site: site, Instrument: instrument, Number: b.entry.Root}, Days: manifest.MergeDays(nil, all)}
	data, err := root.Encode()
	if err != nil {
		l.Fatal(err)
	}
	l.Put(wire.RootKey(site, instrument, b.entry.Root), data)
	b.entry.Open = nil
	if err := l.Store.Delete(l.Context(), wire.RootKey(site, instrument, b.entry.Root-2)); err != nil {
		l.Fatal(err)
	}
}

// flush writes the entries, and then the place that they know.
func (l *lab) flush() {
	l.Helper()
	for instrument, b := range l.known {
		value, err := wire.Encode(b.entry)
		if err != nil {
			l.Fatal(err)
		}
		if _, err := l.kv.Put(l.Context(), instrument, value); err != nil {
			l.Fatal(err)
		}
	}
	value, err := wire.Encode(wire.StreamCursor{Epoch: l.Epoch, Next: l.Next})
	if err != nil {
		l.Fatal(err)
	}
	if _, err := l.kv.Put(l.Context(), wire.IndexListedKey, value); err != nil {
		l.Fatal(err)
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
	l.Helper()
	testenv.Await(l.TB, "the catalog knows what there is", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		state, err := l.kv.Get(context.Background(), wire.IndexListedKey)
		if err != nil {
			return false
		}
		listed, err := wire.Decode[wire.StreamCursor](state.Value())
		if err != nil || c.index.listed != listed || c.overlay.epoch != l.Epoch || c.overlay.next < l.Next {
			return false
		}
		for instrument, b := range l.known {
			value, err := wire.Encode(b.entry)
			if err != nil {
				return false
			}
			known, err := wire.Encode(c.index.entries[instrument])
			if err != nil || !bytes.Equal(value, known) {
				return false
			}
		}
		return true
	})
}
