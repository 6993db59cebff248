// SPDX-License-Identifier: Apache-2.0

package scrub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site   = "thule"
	camera = "allsky-1"
)

type always struct{}

func (always) Check() error { return nil }

// lab is a Site with real servers.
type lab struct {
	t       *testing.T
	js      jetstream.JetStream
	store   objectstore.Store
	status  jetstream.KeyValue
	metrics *Metrics
	parts   int
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, js: testenv.NATS(t, testenv.NATSOptions{}).JetStream(t), store: testenv.SharedBucket(t),
		metrics: NewMetrics(prometheus.NewRegistry())}
	testenv.CreateSite(t, l.js, site)
	var err error
	if l.status, err = l.js.KeyValue(t.Context(), wire.StatusBucket(site)); err != nil {
		t.Fatal(err)
	}
	return l
}

// run runs a scrub until stop is called.
func (l *lab) run(interval time.Duration) (stop func()) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan struct{})
	s := New(Config{
		Base: holder.Base{Site: site, Pod: "gateway-0", JetStream: l.js, Store: l.store, Lease: always{}, Log: slog.New(slog.DiscardHandler)},
		Rate: 1 << 30, Interval: interval, Again: 50 * time.Millisecond, Metrics: l.metrics,
	})
	go func() {
		defer close(done)
		if err := s.Run(ctx); !errors.Is(err, context.Canceled) {
			l.t.Errorf("the scrub ended: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	l.t.Cleanup(stop)
	return stop
}

func (l *lab) put(key, text string) {
	l.t.Helper()
	if err := l.store.Put(l.t.Context(), key, strings.NewReader(text), int64(len(text)), objectstore.PutOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

// object stores an object and returns its record.
func (l *lab) object(at time.Time, text string) wire.Record {
	l.t.Helper()
	digest := wire.Digest(sha256.Sum256([]byte(text)))
	key := wire.RawKey(site, camera, at, digest)
	l.put(key, text)
	return wire.Record{ID: key, Key: key, Size: int64(len(text)), Digest: digest, State: wire.StateCurrent, ReceivedAt: at, TimeSource: wire.TimeSourceReceived}
}

// list writes a part of a manifest.
func (l *lab) list(records ...wire.Record) {
	l.t.Helper()
	l.parts++
	day := wire.DayOf(records[0].ReceivedAt)
	data, err := wire.Manifest{Header: wire.ManifestHeader{Site: site, Instrument: camera, Day: day}, Records: records}.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.store.Put(l.t.Context(), wire.ManifestPartKey(site, camera, day, l.parts), bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

// known returns what stands in the status bucket: causes by ID, of what is confirmed.
func (l *lab) known() map[string]wire.DamageCause {
	l.t.Helper()
	found := map[string]wire.DamageCause{}
	keys, err := l.status.ListKeysFiltered(l.t.Context(), wire.DamageKeys)
	if err != nil {
		l.t.Fatal(err)
	}
	for key := range keys.Keys() {
		e, err := l.status.Get(l.t.Context(), key)
		if err != nil {
			continue // removed meanwhile
		}
		d, err := wire.Decode[wire.Damage](e.Value())
		if err != nil {
			l.t.Fatal(err)
		}
		if d.Confirmed {
			found[d.ID] = d.Cause
		}
	}
	return found
}

func (l *lab) await(what string, want map[string]wire.DamageCause) {
	l.t.Helper()
	for range testenv.Attempts() {
		if cmp.Equal(want, l.known()) {
			return
		}
	}
	l.t.Fatalf("%s (-want +got):\n%s", what, cmp.Diff(want, l.known()))
}

func (l *lab) ledger(day wire.Day) wire.Totals {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.LedgerBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	e, err := kv.Get(l.t.Context(), wire.LedgerKey(camera, day, wire.StepDamaged, wire.ArchivistWriter))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return wire.Totals{}
	}
	if err != nil {
		l.t.Fatal(err)
	}
	entry, err := wire.Decode[wire.LedgerEntry](e.Value())
	if err != nil {
		l.t.Fatal(err)
	}
	return entry.Incarnations[ledgerIncarnation]
}

func (l *lab) cursor() wire.ScrubCursor {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.CursorBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	data, err := stream.NewCell(l.js, kv, wire.ScrubCursorKey).Load(l.t.Context())
	if err != nil || data == nil {
		return wire.ScrubCursor{}
	}
	c, err := wire.Decode[wire.ScrubCursor](data)
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)

// done waits until a pass has come to its end.
func (l *lab) done() {
	l.t.Helper()
	testenv.Await(l.t, "the pass ends", func() bool { return l.cursor().Done })
}

// A repaired object is seen long before the next pass.
func TestRepaired(t *testing.T) {
	l := newLab(t)
	r := l.object(noon, "whole")
	l.list(r)
	l.put(r.Key, "WHOLE")
	l.run(time.Hour)
	l.await("found", map[string]wire.DamageCause{r.ID: wire.DamageDamaged})
	l.put(r.Key, "whole")
	l.await("seen whole", map[string]wire.DamageCause{})
}

// An object that is damaged or gone is found and stands in the ledger, whether the scrub comes to it or another program
// reports it, until it is whole again or the archive does not hold it.
func TestFindings(t *testing.T) {
	l := newLab(t)
	whole, damaged := l.object(noon, "whole"), l.object(noon.Add(time.Second), "first")
	missing, purged := l.object(noon.Add(2*time.Second), "missing"), l.object(noon.Add(3*time.Second), "purged")
	late := l.object(noon.Add(24*time.Hour), "late")
	lost := purged
	lost.State = wire.StatePurged
	l.list(whole, damaged, missing, lost)
	l.parts = 0
	l.list(late)
	l.parts = 1
	l.put(damaged.Key, "First")
	for _, r := range []wire.Record{missing, purged} {
		if err := l.store.Delete(t.Context(), r.Key); err != nil {
			t.Fatal(err)
		}
	}
	stop := l.run(time.Hour)
	want := map[string]wire.DamageCause{damaged.ID: wire.DamageDamaged, missing.ID: wire.DamageMissing}
	l.await("found", want)
	l.done()
	if c := l.cursor(); c.Objects != 4 || c.Damaged != 2 || c.Bytes != uint64(whole.Size+damaged.Size+missing.Size+late.Size) {
		t.Errorf("the pass: %+v", c)
	}
	expect := wire.Totals{Objects: 2, ObjectBytes: uint64(damaged.Size + missing.Size), Digest: damaged.Digest.Plus(missing.Digest)}
	if diff := cmp.Diff(expect, l.ledger("2026-11-21")); diff != "" {
		t.Errorf("ledger (-want +got):\n%s", diff)
	}

	// Another says that two more are: one of them is.
	l.put(late.Key, "LATE")
	for _, r := range []wire.Record{late, whole} {
		claim, err := wire.Encode(wire.DamageOf(camera, r, wire.DamageDamaged, "feed-server-0", noon))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.status.Put(t.Context(), wire.DamageKey(camera, r.ID), claim); err != nil {
			t.Fatal(err)
		}
	}
	want[late.ID] = wire.DamageDamaged
	l.await("claimed", want)
	testenv.Await(t, "the wrong claim goes", func() bool {
		_, err := l.status.Get(t.Context(), wire.DamageKey(camera, whole.ID))
		return errors.Is(err, jetstream.ErrKeyNotFound)
	})
	if l.ledger("2026-11-22").Objects != 1 {
		t.Errorf("ledger of the claim: %+v", l.ledger("2026-11-22"))
	}
	stop()

	// One is mended, one purged: the next pass, in another incarnation, sees it.
	l.put(damaged.Key, "first")
	missing.State = wire.StatePurged
	data, err := wire.Manifest{Header: wire.ManifestHeader{Site: site, Instrument: camera, Day: "2026-11-21", Replaces: []string{wire.ManifestPartKey(site, camera, "2026-11-21", 1)}},
		Records: []wire.Record{whole, damaged, missing, lost}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	l.put(wire.ManifestVersionKey(site, camera, "2026-11-21", 1), string(data))
	l.run(time.Millisecond)
	l.await("healed", map[string]wire.DamageCause{late.ID: wire.DamageDamaged})
	for range testenv.Attempts() {
		if l.ledger("2026-11-21").Objects == 0 {
			return
		}
	}
	t.Fatalf("the ledger keeps what is healed: %+v", l.ledger("2026-11-21"))
}

// A file of a manifest that cannot be read is known to be damaged until the day has a new
// version, whether the scrub comes to it or another says so. The ledger counts objects alone.
func TestUnreadableManifest(t *testing.T) {
	for name, claimed := range map[string]bool{"found": false, "claimed": true} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			r := l.object(noon, "whole")
			l.list(r)
			day := wire.DayOf(noon)
			whole, file := wire.ManifestPartKey(site, camera, day, 1), wire.ManifestPartKey(site, camera, day, 2)
			if !claimed {
				l.put(file, "no manifest")
			}
			l.run(time.Hour)
			if claimed {
				l.done()
				l.put(file, "no manifest")
				l.claim(file)
				l.claim(whole)
			}
			l.await("known", map[string]wire.DamageCause{file: wire.DamageDamaged})
			if got := l.ledger(day); got.Objects != 0 {
				t.Errorf("the ledger counts it: %+v", got)
			}
			data, err := wire.Manifest{Header: wire.ManifestHeader{Site: site, Instrument: camera, Day: day, Replaces: []string{whole, file}}, Records: []wire.Record{r}}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			l.put(wire.ManifestVersionKey(site, camera, day, 1), string(data))
			l.await("replaced", map[string]wire.DamageCause{})
		})
	}
}

// claim says that a file of a manifest of noon's day is damaged.
func (l *lab) claim(file string) {
	l.t.Helper()
	claim, err := wire.Encode(wire.DamageOf(camera, wire.Record{ID: file, Key: file, ReceivedAt: noon}, wire.DamageDamaged, "gateway-1", noon))
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.status.Put(l.t.Context(), wire.DamageKey(camera, file), claim); err != nil {
		l.t.Fatal(err)
	}
}

// A pass continues where the last incarnation left it.
func TestCursor(t *testing.T) {
	l := newLab(t)
	first, second := l.object(noon, "first"), l.object(noon.Add(time.Second), "second")
	l.list(first, second)
	l.put(first.Key, "First")
	l.put(second.Key, "Second")
	value, err := wire.Encode(wire.ScrubCursor{BegunAt: time.Now(), Instrument: camera, Day: "2026-11-21", Records: 1})
	if err != nil {
		t.Fatal(err)
	}
	kv, err := l.js.KeyValue(t.Context(), wire.CursorBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), wire.ScrubCursorKey, value); err != nil {
		t.Fatal(err)
	}
	stop := l.run(time.Hour)
	l.done()
	stop()
	l.await("of the second alone", map[string]wire.DamageCause{second.ID: wire.DamageDamaged})
}

// TestScrubStatus: the status bucket says when the whole archive was last read, and since when it is read again; it still
// does when another archivist continues.
func TestScrubStatus(t *testing.T) {
	l := newLab(t)
	r := l.object(noon, "whole")
	l.list(r)
	l.put(wire.ManifestPartKey(site, camera, "2026-11-22", 1), "this is no manifest")
	begun := time.Now()
	stop := l.run(time.Hour)
	first := l.awaitStatus("a pass that ended", func(s wire.ScrubStatus) bool { return s.LastPass != nil && s.Pass == nil })
	if p := first.LastPass; p.BegunAt.Before(begun.Add(-time.Second)) || p.EndedAt == nil || p.EndedAt.Before(p.BegunAt) || p.Objects != 1 || p.Unreadable != 1 || p.Day != "" {
		t.Errorf("the pass: %+v", p)
	}
	stop()
	if err := l.status.Delete(t.Context(), wire.ScrubStatusKey); err != nil {
		t.Fatal(err)
	}
	stop = l.run(time.Hour)
	if again := l.awaitStatus("the same of the next archivist", func(s wire.ScrubStatus) bool { return s.LastPass != nil }); !cmp.Equal(again.LastPass, first.LastPass) {
		t.Errorf("it says %+v, before it was %+v", again.LastPass, first.LastPass)
	}
	stop()

	// The next pass begins, and is not run.
	s := New(Config{Base: holder.Base{Site: site, Pod: "gateway-0", JetStream: l.js, Store: l.store, Lease: always{}, Log: slog.New(slog.DiscardHandler)}, Interval: time.Nanosecond, Metrics: l.metrics})
	if err := errors.Join(s.begin(t.Context()), s.nextPass(t.Context())); err != nil {
		t.Fatal(err)
	}
	under := l.awaitStatus("a pass under way", func(s wire.ScrubStatus) bool { return s.Pass != nil })
	if !cmp.Equal(under.LastPass, first.LastPass) || under.Pass.EndedAt != nil || !under.Pass.BegunAt.After(*first.LastPass.EndedAt) {
		t.Errorf("while a pass is under way it says %+v, %+v", under.LastPass, under.Pass)
	}
}

// awaitStatus watches what is reported.
func (l *lab) awaitStatus(what string, as func(wire.ScrubStatus) bool) wire.ScrubStatus {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 30*time.Second)
	defer cancel()
	watch, err := l.status.Watch(ctx, wire.ScrubStatusKey, jetstream.IgnoreDeletes())
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = watch.Stop() }()
	for {
		select {
		case <-ctx.Done():
			l.t.Fatalf("%s: none was reported", what)
		case e := <-watch.Updates():
			if e == nil {
				continue
			}
			status, err := wire.Decode[wire.ScrubStatus](e.Value())
			if err != nil {
				l.t.Fatal(err)
			}
			if as(status) {
				return status
			}
		}
	}
}
