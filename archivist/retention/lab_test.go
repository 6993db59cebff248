// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/compact"
	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/archivist/index"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site   = "thule"
	camera = "allsky-1"
	sonde  = "sonde-1"
	day    = wire.Day("2026-11-10")
)

var (
	noon = time.Date(2026, 11, 10, 12, 0, 0, 0, time.UTC)
	now  = noon.AddDate(0, 0, 11)
)

// lab is a Site's archive with a day of two instruments.
type lab struct {
	*manifesttest.Archive
	hold bool
	keep *wire.RetentionEntry
	// closedTo is how far the ledger is closed; unread: the registry is not known yet.
	closedTo wire.Day
	unread   bool
	// agree compares the clocks: those of the lab agree.
	agree func(context.Context, time.Time) error
	// partners that are declared; nil: they are unknown.
	partners map[string]*wire.MirrorEntry
	// pullers are readers that are declared to pull.
	pullers []wire.ReaderEntry
	// access of the camera.
	access  *wire.AccessEntry
	metrics *Metrics
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Archive: manifesttest.New(t, site),
		agree: func(context.Context, time.Time) error { return nil }, closedTo: day, metrics: NewMetrics(prometheus.NewRegistry()),
		keep: &wire.RetentionEntry{MaxAgeMillis: (48 * time.Hour).Milliseconds(), HoldMillis: time.Hour.Milliseconds()}}
	l.listed()
	return l
}

// listed says that the index and the manifest's writer have come to the same place: a
// keeper that begins looks at no day.
func (l *lab) listed() {
	l.Helper()
	value, err := wire.Encode(wire.StreamCursor{Epoch: l.Epoch, Next: l.Next})
	if err != nil {
		l.Fatal(err)
	}
	for bucket, key := range map[string]string{wire.IndexBucket(site): wire.IndexListedKey, wire.CursorBucket(site): wire.NoticeCursorKey} {
		if _, err := l.KV(bucket).Put(l.Context(), key, value); err != nil {
			l.Fatal(err)
		}
	}
}

// keeper is one of an index that is complete, until stop is called.
func (l *lab) keeper() (k *index.Keeper, stop func()) {
	l.Helper()
	k = l.idle()
	ctx, cancel := context.WithCancel(l.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = k.Run(ctx) // ctx's
	}()
	testenv.Await(l.TB, "the index is complete", k.Complete)
	return k, func() { cancel(); <-done }
}

// idle is a keeper that was not begun: its index is not complete.
func (l *lab) idle() *index.Keeper {
	return index.New(index.Config{
		Base:    holder.Base{Site: site, Pod: "gateway-0", Incarnation: "one", JetStream: l.JetStream, Store: l.Store, Lease: manifesttest.Lease{Store: l.Store}, Log: slog.New(slog.DiscardHandler)},
		Deleter: l.deleter(), RootInterval: time.Nanosecond, Metrics: index.NewMetrics(prometheus.NewRegistry()),
	})
}

func (l *lab) deleter() *deletion.Deleter {
	return deletion.New(deletion.Config{
		Base: holder.Base{Site: site, Pod: "gateway-0", Incarnation: "one", Store: l.Store, Lease: manifesttest.Lease{Store: l.Store}, Log: slog.New(slog.DiscardHandler)},
		Held: func(string) string {
			if l.hold {
				return "it is under legal hold"
			}
			return ""
		}, Metrics: deletion.NewMetrics(prometheus.NewRegistry()),
	})
}

// collector returns a collector that has begun, as after a start of the archivist.
func (l *lab) collector() *Collector { return l.collectorWith(nil) }

// collectorWith is a collector that notifies readers through an index.
func (l *lab) collectorWith(k *index.Keeper) *Collector {
	l.Helper()
	log := slog.New(slog.DiscardHandler)
	deleter := l.deleter()
	compactor := compact.New(compact.Config{
		Base:    holder.Base{Site: site, Pod: "gateway-0", Incarnation: "one", JetStream: l.JetStream, Store: l.Store, Lease: manifesttest.Lease{Store: l.Store}, Log: log},
		Deleter: deleter, PackBelow: func(string) int64 { return 0 }, Index: k, ScratchDir: l.TempDir(), Metrics: compact.NewMetrics(prometheus.NewRegistry()),
	})
	r := New(Config{
		Base:      holder.Base{Site: site, Pod: "gateway-0", Incarnation: "one", JetStream: l.JetStream, Store: l.Store, Lease: manifesttest.Lease{Store: l.Store}, Log: log},
		Compactor: compactor, Deleter: deleter, Declared: func() ([]wire.InstrumentEntry, bool) {
			return []wire.InstrumentEntry{{Instrument: camera, Retention: l.keep, Access: l.access}, {Instrument: sonde}}, !l.unread
		}, Agree: l.agree, ClosedTo: func() wire.Day { return l.closedTo }, Grace: time.Minute, Metrics: l.metrics,
	})
	if l.partners != nil || l.pullers != nil {
		r.cfg.Partners = func() (map[string]Partner, bool) {
			all := map[string]Partner{}
			for name, entry := range l.partners {
				all[name] = Partner{Push: entry}
			}
			for i := range l.pullers {
				all[wire.PullerName(l.pullers[i].Reader)] = Partner{Pull: &l.pullers[i]}
			}
			return all, true
		}
	}
	r.kv = l.KV(wire.CursorBucket(site))
	return r
}

func (l *lab) record(at time.Time, body string) wire.Record {
	return wire.Record{Size: int64(len(body)), Digest: sha256.Sum256([]byte(body)), State: wire.StateCurrent, ReceivedAt: at,
		TimeSource: wire.TimeSourceReceived, Gateway: "gateway-0", Incarnation: "one"}
}

// fill stores objects by themselves and in a pack that both instruments share, lists them, and lets
// the index know the day.
func (l *lab) fill() {
	l.Helper()
	l.Clear()
	lines := map[string][]wire.Record{}
	for i := range 3 {
		r := l.record(noon.Add(time.Duration(i)*time.Second), fmt.Sprint("raw ", i))
		r.Key = wire.RawKey(site, camera, r.ReceivedAt, r.Digest)
		r.ID = r.Key
		l.Put(r.Key, fmt.Append(nil, "raw ", i))
		lines[camera] = append(lines[camera], r)
	}
	named := l.record(noon.Add(time.Minute), "named")
	named.Name, named.Key = "night.fits", wire.NamedKey(site, camera, "night.fits", 1)
	named.ID = named.Key
	l.Put(named.Key, []byte("named"))
	foreign := l.record(noon.Add(2*time.Minute), "foreign")
	foreign.ID, foreign.Key, foreign.Name = "old/tree/1", "old/tree/1", "1"
	l.Put(foreign.Key, []byte("foreign"))
	lines[camera] = append(lines[camera], named, foreign)

	var out bytes.Buffer
	w := pack.NewWriter(wire.PackKey(site, noon, "gateway-0", "one", 1), &out)
	for i, instrument := range []string{camera, sonde, camera} {
		body := fmt.Sprint("packed ", i)
		n, err := w.Add(wire.Notice{Site: site, Instrument: instrument, Record: l.record(noon.Add(time.Hour), body)}, strings.NewReader(body))
		if err != nil {
			l.Fatal(err)
		}
		lines[instrument] = append(lines[instrument], n.Record)
	}
	if err := w.Close(); err != nil {
		l.Fatal(err)
	}
	l.Put(wire.PackKey(site, noon, "gateway-0", "one", 1), out.Bytes())
	for instrument, records := range lines {
		l.PutPart(instrument, day, 1, records...)
	}
	l.index()
}

// index says of the day what its manifests say.
func (l *lab) index() {
	l.Helper()
	l.indexOf(camera)
	l.indexOf(sonde)
}

func (l *lab) indexOf(instrument string) {
	l.Helper()
	d, err := manifest.Summarize(l.Context(), l.Store, site, instrument, day)
	if err != nil {
		l.Fatal(err)
	}
	value, err := wire.Encode(wire.IndexEntry{Open: []wire.RootDay{d}})
	if err != nil {
		l.Fatal(err)
	}
	if _, err := l.KV(wire.IndexBucket(site)).Put(l.Context(), instrument, value); err != nil {
		l.Fatal(err)
	}
}

// states counts what is listed of an instrument, and reads all that is current.
func (l *lab) states(instrument string) map[wire.State]int {
	l.Helper()
	states := map[wire.State]int{}
	for r, err := range manifest.Records(l.Context(), l.Store, site, instrument, day) {
		if err != nil {
			l.Fatal(err)
		}
		states[r.State]++
		if r.State != wire.StateCurrent {
			continue
		}
		body, err := objectpath.Open(l.Context(), l.Store, r)
		if err == nil {
			_, err = io.Copy(io.Discard, body)
			_ = body.Close()
		}
		if err != nil {
			l.Errorf("%s is listed as current: %v", r.ID, err)
		}
	}
	return states
}

// pass looks for what is due, and removes it.
func (l *lab) pass(r *Collector, at time.Time) {
	l.Helper()
	if _, err := r.findDue(l.Context(), at); err != nil {
		l.Fatal(err)
	}
	if err := r.pass(l.Context(), at); err != nil {
		l.Fatal(err)
	}
}

func (l *lab) waiting(r *Collector) int {
	l.Helper()
	all, err := r.batches(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	return len(all)
}

func (l *lab) want(what string, got, want any) {
	l.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		l.Errorf("%s: %v, want %v", what, got, want)
	}
}

// gone checks that all of the camera's day is gone, and nothing else.
func (l *lab) gone() {
	l.Helper()
	l.want("the camera's states", l.states(camera), map[wire.State]int{wire.StatePurged: 6, wire.StateCurrent: 1})
	l.want("the sonde's states", l.states(sonde), map[wire.State]int{wire.StateCurrent: 1})
	l.want("the camera's objects", len(l.Keys(wire.InstrumentPrefix(site, camera))), 0)
	l.want("packs", len(l.Keys(wire.PacksPrefix(site))), 1)
	l.want("what others keep", len(l.Keys("old/")), 1)
	changes, err := manifest.ReadChanges(l.Context(), l.Store, site, camera, day)
	if err != nil {
		l.Fatal(err)
	}
	l.want("changes beside the data", len(changes.Records), 6)
}
