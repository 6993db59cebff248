// SPDX-License-Identifier: Apache-2.0

package descriptions

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const site = "thule"

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// lease is held, unless it is lost at the so manieth check.
type lease struct{ checks, lostAt int }

func (l *lease) Check() error {
	if l.checks++; l.lostAt > 0 && l.checks >= l.lostAt {
		return stream.ErrLeaseLost
	}
	return nil
}

type lab struct {
	t        *testing.T
	js       jetstream.JetStream
	store    objectstore.Store
	declared []wire.InstrumentEntry
	lease    lease
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, js: testenv.NATS(t, testenv.NATSOptions{}).JetStream(t), store: testenv.SharedBucket(t)}
	testenv.CreateSite(t, l.js, site)
	return l
}

// archiver is one incarnation of it.
func (l *lab) archiver() *Archiver {
	return New(Config{
		Base:     holder.Base{Site: site, JetStream: l.js, Store: l.store, Lease: &l.lease, Log: slog.New(slog.NewTextHandler(l.t.Output(), nil))},
		Declared: func() ([]wire.InstrumentEntry, bool) { return l.declared, l.declared != nil }, Metrics: NewMetrics(prometheus.NewRegistry()),
	})
}

func (l *lab) pass(r *Archiver, now time.Time) {
	l.t.Helper()
	if err := r.pass(l.t.Context(), now); err != nil {
		l.t.Fatal(err)
	}
}

func entry(instrument string, generation int64, license string) wire.InstrumentEntry {
	e := wire.InstrumentEntry{Instrument: instrument, UID: instrument + "-uid", Generation: generation, Station: "tromso",
		Listeners: []wire.ListenerEntry{{Protocol: wire.ProtocolTCP, Port: 30101, Tokens: []wire.TokenHash{{Salt: "00", SHA256: strings.Repeat("5", 64)}}}}}
	if license != "" {
		e.Rights = &wire.RightsEntry{License: license}
	}
	return e
}

func (l *lab) kv() jetstream.KeyValue {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.DescriptionBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	return kv
}

// kept returns, by key of the entries, what the bucket and the key-value bucket hold,
// which must be equal.
func (l *lab) kept() map[string]string {
	l.t.Helper()
	stored, told := l.stored(), map[string]string{}
	err := stream.Entries(l.t.Context(), l.js, l.kv(), ">", func(e jetstream.KeyValueEntry) error {
		told[e.Key()] = string(e.Value())
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	if diff := cmp.Diff(stored, told); diff != "" {
		l.t.Errorf("the bucket holds other descriptions than the key-value bucket (-bucket +entries):\n%s", diff)
	}
	return stored
}

func (l *lab) stored() map[string]string {
	l.t.Helper()
	stored := map[string]string{}
	for info, err := range l.store.List(l.t.Context(), wire.DescriptionSitePrefix(site), "") {
		if err != nil {
			l.t.Fatal(err)
		}
		key, err := wire.DescriptionEntryKey(info.Key)
		if err != nil {
			continue // see TestOthers
		}
		body, _, err := l.store.Get(l.t.Context(), info.Key, objectstore.All)
		if err != nil {
			l.t.Fatal(err)
		}
		data, err := io.ReadAll(body)
		body.Close()
		if err != nil {
			l.t.Fatal(err)
		}
		stored[key] = string(data)
	}
	return stored
}

// holds fails unless the archive has these descriptions: key to license.
func (l *lab) holds(when string, want map[string]string) {
	l.t.Helper()
	got := map[string]string{}
	for key, text := range l.kept() {
		d, err := wire.Decode[wire.Description]([]byte(text))
		if err != nil || d.EntryKey() != key || d.Site != site {
			l.t.Fatalf("%s: %s: %v, %+v", when, key, err, d)
		}
		if strings.Contains(text, "30101") || strings.Contains(text, "5555") {
			l.t.Errorf("it tells of listeners: %s", text)
		}
		got[key] = ""
		if d.Rights != nil {
			got[key] = d.Rights.License
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		l.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// TestChanges: what changes is archived once, by any number of incarnations.
func TestChanges(t *testing.T) {
	l := newLab(t)
	r := l.archiver()
	l.pass(r, noon)
	l.holds("no registry yet", map[string]string{})

	l.declared = []wire.InstrumentEntry{entry("cam", 1, ""), entry("mag", 3, "CC0-1.0")}
	l.pass(r, noon)
	want := map[string]string{"cam.1795262400000-1": "", "mag.1795262400000-3": "CC0-1.0"}
	l.holds("the first", want)

	l.declared = []wire.InstrumentEntry{entry("cam", 1, ""), entry("mag", 4, "CC0-1.0")}
	l.declared[1].Listeners, l.declared[1].LegalHold = nil, true
	l.pass(r, noon.Add(time.Hour))
	l.pass(l.archiver(), noon.Add(time.Hour))
	l.holds("a generation that says the same of the data", want)

	l.declared[1] = entry("mag", 5, "CC-BY-4.0")
	l.pass(r, noon.Add(2*time.Hour))
	want["mag.1795269600000-5"] = "CC-BY-4.0"
	l.holds("another license", want)

	l.declared[1] = entry("mag", 6, "CC-BY-SA-4.0")
	l.pass(r, noon.Add(2*time.Hour+time.Second))
	l.holds("a change a second later waits", want)
	l.declared[1] = entry("mag", 7, "CC-BY-NC-4.0")
	next := l.archiver() // another incarnation
	l.pass(next, noon.Add(2*time.Hour+time.Second))
	l.holds("in another incarnation, too", want)
	l.pass(next, noon.Add(2*time.Hour+time.Minute))
	want["mag.1795269660000-7"] = "CC-BY-NC-4.0"
	l.holds("and what it comes to is archived", want)

	l.declared[1] = entry("mag", 5, "CC-BY-4.0")
	l.pass(next, noon.Add(3*time.Hour))
	l.holds("an old registry", want)
	l.declared[1] = entry("mag", 1, "CC0-1.0")
	l.declared[1].UID = "made anew"
	l.pass(next, noon.Add(3*time.Hour))
	want["mag.1795273200000-1"] = "CC0-1.0"
	l.holds("an Instrument of the same name", want)
	l.declared[1] = entry("mag", 7, "CC-BY-NC-4.0")
	l.pass(next, noon.Add(4*time.Hour))
	l.holds("an old registry of the Instrument before", want)

	l.declared[1] = entry("mag", 2, "CC0-1.0")
	l.declared[1].UID, l.declared[1].Station = "made anew", "kiruna"
	l.pass(next, noon)
	want["mag.1795273200001-2"] = "CC0-1.0"
	l.holds("a clock that is behind", want)

	l.declared[1] = entry("mag", 6, "CC-BY-SA-4.0")
	l.pass(next, noon.Add(5*time.Hour))
	l.pass(next, noon.Add(5*time.Hour+59*time.Second))
	l.holds("an old registry, for less than a minute", want)
	l.pass(next, noon.Add(5*time.Hour+time.Minute))
	l.pass(next, noon.Add(6*time.Hour))
	want["mag.1795280460000-6"] = "CC-BY-SA-4.0"
	l.holds("a cluster that was restored from a backup", want)
	if n := testutil.ToFloat64(next.cfg.Metrics.written); n != 4 {
		t.Errorf("%v were counted", n)
	}
}

// TestLostEntries: a key-value bucket that was lost is filled from the bucket, in the
// same incarnation and in another.
func TestLostEntries(t *testing.T) {
	l := newLab(t)
	l.declared = []wire.InstrumentEntry{entry("cam", 1, ""), entry("mag", 3, "CC0-1.0")}
	r := l.archiver()
	l.pass(r, noon)
	l.declared[1] = entry("mag", 4, "CC-BY-4.0")
	l.pass(r, noon.Add(time.Hour))
	want := l.kept()
	if len(want) != 3 {
		t.Fatalf("%v", want)
	}
	for name, archiver := range map[string]*Archiver{"in the same incarnation": r, "in another": l.archiver()} {
		if err := l.js.DeleteKeyValue(t.Context(), wire.DescriptionBucket(site)); err != nil {
			t.Fatal(err)
		}
		if err := archiver.pass(t.Context(), noon); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("without the bucket: %v", err)
		}
		testenv.CreateSite(t, l.js, site)
		l.pass(archiver, noon.Add(2*time.Hour))
		if diff := cmp.Diff(want, l.kept()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if n := testutil.ToFloat64(archiver.cfg.Metrics.restored); n != 3 {
			t.Errorf("%s %v were counted", name, n)
		}
	}
}

// TestKilledBetween: the object arrived, and its entry did not. No second description
// is made of it.
func TestKilledBetween(t *testing.T) {
	l := newLab(t)
	l.declared = []wire.InstrumentEntry{entry("mag", 3, "CC0-1.0")}
	l.lease.lostAt = 2 // after the object
	if err := l.archiver().pass(t.Context(), noon); !errors.Is(err, stream.ErrLeaseLost) {
		t.Fatalf("%v", err)
	}
	if n := len(l.stored()); n != 1 {
		t.Fatalf("%d objects", n)
	}
	if _, err := l.kv().Get(t.Context(), "mag.1795262400000-3"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Fatalf("its entry: %v", err)
	}
	l.lease = lease{}
	l.pass(l.archiver(), noon.Add(time.Hour))
	l.holds("in the next incarnation", map[string]string{"mag.1795262400000-3": "CC0-1.0"})
}

// failing is a store that does not answer, or whose answer is lost.
type failing struct {
	objectstore.Store
	before, after bool
}

func (f *failing) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objectstore.PutOptions) error {
	if f.before {
		return objectstore.ErrUnavailable
	}
	err := f.Store.Put(ctx, key, body, size, opts)
	if f.after {
		return objectstore.ErrUnavailable
	}
	return err
}

// TestFailures: the archiver continues when the store fails, and archives nothing twice.
func TestFailures(t *testing.T) {
	l := newLab(t)
	store := &failing{Store: l.store, before: true}
	l.store = store
	l.declared = []wire.InstrumentEntry{entry("cam", 1, ""), entry("mag", 3, "CC0-1.0")}
	r := l.archiver()
	if err := r.pass(t.Context(), noon); !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if n := testutil.ToFloat64(r.cfg.Metrics.failures); n != 2 {
		t.Errorf("%v failures: one instrument keeps the others", n)
	}
	store.before, store.after = false, true
	if err := r.pass(t.Context(), noon.Add(time.Minute)); !errors.Is(err, objectstore.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	store.after = false
	r.known = nil // as Run does
	l.pass(r, noon.Add(2*time.Minute))
	l.holds("at last", map[string]string{"cam.1795262460000-1": "", "mag.1795262460000-3": "CC0-1.0"})
}

// TestOthers: what cannot be read is passed over, and counted.
func TestOthers(t *testing.T) {
	l := newLab(t)
	for key, text := range map[string]string{
		"descriptions/thule/README":                   "hello",
		"descriptions/thule/mag/1795262400000-1.json": `{"format":2,"from":7}`,
		"descriptions/thule/mag/1795262400000-2.json": `{"format":1,"site":"thule","instrument":"mag","uid":"u","generation":3,"from":"2026-11-21T12:00:00Z"}`,
		"descriptions/thule/mag/1795262400000-4.json": strings.Repeat("x", maxSize+1),
	} {
		if err := l.store.Put(t.Context(), key, bytes.NewReader([]byte(text)), int64(len(text)), objectstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.kv().Put(t.Context(), "mag.1795262400000-9", []byte("nothing")); err != nil {
		t.Fatal(err)
	}
	l.declared = []wire.InstrumentEntry{entry("mag", 3, "CC0-1.0")}
	r := l.archiver()
	l.pass(r, noon.Add(time.Hour))
	if e, err := l.kv().Get(t.Context(), "mag.1795266000000-3"); err != nil || !bytes.Contains(e.Value(), []byte("CC0-1.0")) {
		t.Errorf("%v", err)
	}
	if n := testutil.ToFloat64(r.cfg.Metrics.failures); n != 5 {
		t.Errorf("%v were passed over", n)
	}
}

// TestRun: the archiver by itself, from one incarnation to the next.
func TestRun(t *testing.T) {
	l := newLab(t)
	l.declared = []wire.InstrumentEntry{entry("mag", 3, "CC0-1.0")}
	for range 2 {
		r := l.archiver()
		r.cfg.Interval = 10 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
		testenv.Await(t, "a description is stored", func() bool { return len(l.stored()) > 0 })
		cancel()
		running.Wait()
	}
	l.lease.lostAt = 1
	l.declared[0] = entry("mag", 4, "CC-BY-4.0")
	r := l.archiver()
	r.cfg.Settle = time.Nanosecond
	if err := r.Run(t.Context()); !errors.Is(err, stream.ErrLeaseLost) {
		t.Errorf("%v", err)
	}
	if n := len(l.stored()); n != 1 {
		t.Errorf("%d descriptions", n)
	}
}
