// SPDX-License-Identifier: Apache-2.0

package keeping

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
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/e2e/parts"
	"github.com/substorm/substorm/ingest-gateway/archive/compact"
	"github.com/substorm/substorm/ingest-gateway/archive/index"
	"github.com/substorm/substorm/ingest-gateway/archive/pack"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/tree"
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

// lease is lost with the store.
type lease struct{ store *mortal }

func (l lease) Check() error {
	if l.store.writes == 0 {
		return errKilled
	}
	return nil
}

// mortal is a store that does no more writes after some.
type mortal struct {
	objectstore.Store
	writes int    // negative: without end
	stuck  string // a key that cannot be deleted
	// deletes is called before a key is deleted.
	deletes func(key string)
}

// errKilled ends a room, as the loss of the lease does.
var errKilled = fmt.Errorf("killed: %w", stream.ErrLeaseLost)

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
	if m.deletes != nil {
		m.deletes(key)
	}
	if key == m.stuck {
		return objectstore.ErrAccessDenied
	}
	if err := m.write(); err != nil {
		return err
	}
	return m.Store.Delete(ctx, key)
}

// lab is a Site's archive with a day of two instruments.
type lab struct {
	t     *testing.T
	js    jetstream.JetStream
	store *mortal
	hold  bool
	keep  *wire.RetentionEntry
	// closedTo is how far the ledger is closed; unread: the registry is not known yet.
	closedTo wire.Day
	unread   bool
	metrics  *Metrics
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, js: parts.NATS(t, parts.NATSOptions{}).JetStream(t), store: &mortal{Store: parts.MinIO(t, parts.MinIOOptions{}).Bucket(t, "archive"), writes: -1},
		closedTo: day, metrics: NewMetrics(prometheus.NewRegistry()),
		keep: &wire.RetentionEntry{MaxAgeMillis: (48 * time.Hour).Milliseconds(), HoldMillis: time.Hour.Milliseconds()}}
	parts.CreateSite(t, l.js, site)
	l.listed()
	return l
}

// listed says that the index and the manifest's writer have come to the same place: a
// keeper that begins looks at no day.
func (l *lab) listed() {
	l.t.Helper()
	epoch, _, err := stream.Epoch(l.t.Context(), l.js, wire.NoticeStream(site))
	if err != nil {
		l.t.Fatal(err)
	}
	value, err := wire.StreamCursor{Epoch: epoch, Next: 1}.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	for bucket, key := range map[string]string{wire.IndexBucket(site): wire.IndexListedKey, wire.CursorBucket(site): wire.NoticeCursorKey} {
		kv, err := l.js.KeyValue(l.t.Context(), bucket)
		if err == nil {
			_, err = kv.Put(l.t.Context(), key, value)
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

// keeper is one of an index that is complete, until stop is called.
func (l *lab) keeper() (k *index.Keeper, stop func()) {
	l.t.Helper()
	k = l.idle()
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = k.Run(ctx) // ctx's
	}()
	for deadline := time.Now().Add(time.Minute); !k.Complete(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatal("the index is not complete after a minute")
		}
	}
	return k, func() { cancel(); <-done }
}

// idle is a keeper that was not begun: its index is not complete.
func (l *lab) idle() *index.Keeper {
	return index.New(index.Config{Site: site, Gateway: "gateway-0", Incarnation: "one", JetStream: l.js, Store: l.store, Lease: lease{l.store},
		RootInterval: time.Nanosecond, Log: slog.New(slog.DiscardHandler), Metrics: index.NewMetrics(prometheus.NewRegistry())})
}

// room is one that has begun, as after a start of the archivist.
func (l *lab) room() *Room { return l.roomWith(nil) }

// roomWith is a room that tells readers by an index.
func (l *lab) roomWith(k *index.Keeper) *Room {
	l.t.Helper()
	log := slog.New(slog.DiscardHandler)
	compactor := compact.New(compact.Config{Site: site, Gateway: "gateway-0", Incarnation: "one", JetStream: l.js, Store: l.store, Lease: lease{l.store},
		PackBelow: func(string) int64 { return 0 }, Index: k, ScratchDir: l.t.TempDir(), Log: log, Metrics: compact.NewMetrics(prometheus.NewRegistry())})
	r := New(Config{Site: site, Gateway: "gateway-0", Incarnation: "one", JetStream: l.js, Store: l.store, Lease: lease{l.store}, Compactor: compactor,
		Held: func(string) string {
			if l.hold {
				return "it is under legal hold"
			}
			return ""
		},
		Declared: func() ([]wire.InstrumentEntry, bool) {
			return []wire.InstrumentEntry{{Instrument: camera, Retention: l.keep}, {Instrument: sonde}}, !l.unread
		},
		ClosedTo: func() wire.Day { return l.closedTo },
		Grace:    time.Minute, Log: log, Metrics: l.metrics})
	kv, err := l.js.KeyValue(l.t.Context(), wire.CursorBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	r.kv = kv
	return r
}

func (l *lab) record(at time.Time, body string) wire.Record {
	return wire.Record{Size: int64(len(body)), Digest: sha256.Sum256([]byte(body)), State: wire.StateCurrent, ReceivedAt: at,
		TimeSource: wire.TimeSourceReceived, Gateway: "gateway-0", Incarnation: "one"}
}

func (l *lab) put(key string, data []byte) {
	l.t.Helper()
	if err := l.store.Put(l.t.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

// fill stores objects by themselves and in a pack that both instruments share, lists
// them, and lets the index tell of the day.
func (l *lab) fill() {
	l.t.Helper()
	for _, key := range l.keys("") {
		if err := l.store.Delete(l.t.Context(), key); err != nil {
			l.t.Fatal(err)
		}
	}
	lines := map[string][]wire.Record{}
	for i := range 3 {
		r := l.record(noon.Add(time.Duration(i)*time.Second), fmt.Sprint("raw ", i))
		r.Key = wire.RawKey(site, camera, r.ReceivedAt, r.Digest)
		r.ID = r.Key
		l.put(r.Key, fmt.Append(nil, "raw ", i))
		lines[camera] = append(lines[camera], r)
	}
	named := l.record(noon.Add(time.Minute), "named")
	named.Name, named.Key = "night.fits", wire.NamedKey(site, camera, "night.fits", 1)
	named.ID = named.Key
	l.put(named.Key, []byte("named"))
	foreign := l.record(noon.Add(2*time.Minute), "foreign")
	foreign.ID, foreign.Key, foreign.Name = "old/tree/1", "old/tree/1", "1"
	l.put(foreign.Key, []byte("foreign"))
	lines[camera] = append(lines[camera], named, foreign)

	var out bytes.Buffer
	w := pack.NewWriter(wire.PackKey(site, noon, "gateway-0", "one", 1), &out)
	for i, instrument := range []string{camera, sonde, camera} {
		body := fmt.Sprint("packed ", i)
		n, err := w.Add(wire.Notice{Format: wire.Format, Site: site, Instrument: instrument, Record: l.record(noon.Add(time.Hour), body)}, strings.NewReader(body))
		if err != nil {
			l.t.Fatal(err)
		}
		lines[instrument] = append(lines[instrument], n.Record)
	}
	if err := w.Close(); err != nil {
		l.t.Fatal(err)
	}
	l.put(wire.PackKey(site, noon, "gateway-0", "one", 1), out.Bytes())
	for instrument, records := range lines {
		data, err := wire.Manifest{Header: wire.ManifestHeader{Site: site, Instrument: instrument, Day: day}, Records: records}.Encode()
		if err != nil {
			l.t.Fatal(err)
		}
		l.put(wire.ManifestPartKey(site, instrument, day, 1), data)
	}
	l.index()
}

// index says of the day what its manifests say.
func (l *lab) index() {
	l.t.Helper()
	l.indexOf(camera)
	l.indexOf(sonde)
}

func (l *lab) indexOf(instrument string) {
	l.t.Helper()
	d, err := manifest.Summarize(l.t.Context(), l.store, site, instrument, day)
	if err != nil {
		l.t.Fatal(err)
	}
	kv, err := l.js.KeyValue(l.t.Context(), wire.IndexBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	value, err := wire.IndexEntry{Open: []wire.RootDay{d}}.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := kv.Put(l.t.Context(), instrument, value); err != nil {
		l.t.Fatal(err)
	}
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

// states counts what is listed of an instrument, and reads all that is current.
func (l *lab) states(instrument string) map[wire.State]int {
	l.t.Helper()
	states := map[wire.State]int{}
	for r, err := range manifest.Records(l.t.Context(), l.store, site, instrument, day) {
		if err != nil {
			l.t.Fatal(err)
		}
		states[r.State]++
		if r.State != wire.StateCurrent {
			continue
		}
		body, err := tree.Open(l.t.Context(), l.store, r)
		if err == nil {
			_, err = io.Copy(io.Discard, body)
			_ = body.Close()
		}
		if err != nil {
			l.t.Errorf("%s is listed as current: %v", r.ID, err)
		}
	}
	return states
}

// pass looks for what is due, and removes it.
func (l *lab) pass(r *Room, at time.Time) {
	l.t.Helper()
	if _, err := r.findDue(l.t.Context(), at); err != nil {
		l.t.Fatal(err)
	}
	if err := r.pass(l.t.Context(), at); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) waiting(r *Room) int {
	l.t.Helper()
	all, err := r.batches(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return len(all)
}

func (l *lab) want(what string, got, want any) {
	l.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		l.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// gone checks that all of the camera's day is gone, and nothing else.
func (l *lab) gone() {
	l.t.Helper()
	l.want("the camera's states", l.states(camera), map[wire.State]int{wire.StatePurged: 6, wire.StateCurrent: 1})
	l.want("the sonde's states", l.states(sonde), map[wire.State]int{wire.StateCurrent: 1})
	l.want("the camera's objects", len(l.keys(wire.InstrumentPrefix(site, camera))), 0)
	l.want("packs", len(l.keys(wire.PacksPrefix(site))), 1)
	l.want("what others keep", len(l.keys("old/")), 1)
	changes, err := manifest.ReadChanges(l.t.Context(), l.store, site, camera, day)
	if err != nil {
		l.t.Fatal(err)
	}
	l.want("changes beside the data", len(changes.Records), 6)
}

// A day that is older than its Instrument keeps expires as a whole: what others keep
// stays, and what shares a pack with it. Mirrors and legal hold are waited for.
func TestExpire(t *testing.T) {
	l := newLab(t)
	l.fill()
	r := l.room()
	whole := map[wire.State]int{wire.StateCurrent: 7}
	l.pass(r, noon.AddDate(0, 0, 2)) // a day and a half after its end
	l.want("before it is due", l.states(camera), whole)
	l.want("removals", l.waiting(r), 0)

	l.hold = true
	l.pass(r, now)
	l.want("under hold nothing falls due", l.waiting(r), 0)
	l.hold = false
	l.count(wire.StepStored, "gateway-0", 7)
	l.count(wire.StepMirrored, "eiscat", 0)
	l.pass(r, now)
	l.want("a mirror has not got it", l.states(camera), whole)
	l.want("removals", l.waiting(r), 1)
	l.hold = true
	l.pass(r, now.Add(2*time.Hour))
	l.want("under hold again", l.states(camera), whole)
	l.hold = false

	l.keep = nil // the Instrument keeps all by now
	l.pass(r, now.Add(2*time.Hour))
	l.want("it is kept", l.states(camera), whole)
	l.want("removals", l.waiting(r), 0)

	l.keep = &wire.RetentionEntry{MaxAgeMillis: (48 * time.Hour).Milliseconds(), HoldMillis: time.Hour.Milliseconds()}
	l.pass(r, now.Add(3*time.Hour))
	l.want("the mirror is waited for anew", l.states(camera), whole)
	l.pass(r, now.Add(4*time.Hour))
	l.want("readers are waited for", l.waiting(r), 1)
	l.want("packs", len(l.keys(wire.PacksPrefix(site))), 2)
	l.pass(r, now.Add(5*time.Hour))
	l.want("removals", l.waiting(r), 0)
	l.gone()
	for rec, err := range manifest.Records(t.Context(), l.store, site, camera, day) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.State == wire.StatePurged && (rec.Reason != "expired: kept for 48h0m0s" || rec.ChangedBy != "spec.archive.retention" || rec.PurgedAt == nil) {
			t.Errorf("%+v", rec)
		}
	}
	l.index()
	removed := testutil.ToFloat64(l.metrics.objects.WithLabelValues(byExpiry))
	l.want("objects removed", removed, 6)
	versions := len(l.keys(wire.ManifestPrefix(site, camera, day)))
	for range 3 { // what others keep is there, and is no reason to begin anew, whatever an index says
		if err := r.expireLater(t.Context(), camera, DueDay{day, "its bytes"}, now.Add(6*time.Hour)); err != nil {
			t.Fatal(err)
		}
		l.pass(r, now.Add(6*time.Hour))
	}
	l.want("nothing is due any more", l.waiting(r), 0)
	l.want("objects removed", testutil.ToFloat64(l.metrics.objects.WithLabelValues(byExpiry)), removed)
	l.want("manifests", len(l.keys(wire.ManifestPrefix(site, camera, day))), versions)
}

// Whenever the process dies, nothing that is listed as current lacks its bytes, and the
// next one ends what was begun.
func TestExpireKilled(t *testing.T) {
	l := newLab(t)
	for writes := 0; ; writes++ {
		l.store.writes = -1
		l.fill()
		k, stop := l.keeper()
		r := l.roomWith(k)
		if _, err := r.findDue(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		l.store.writes = writes
		err := r.pass(t.Context(), now)
		if err == nil {
			err = r.pass(t.Context(), now.Add(time.Hour))
		}
		finished := err == nil
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		l.store.writes = -1
		stop()
		l.states(camera)
		l.states(sonde)
		k, stop = l.keeper()
		next := l.roomWith(k)
		shared := wire.PackKey(site, noon, "gateway-0", "one", 1)
		before := len(l.keys(shared))
		if err := next.pass(t.Context(), now.Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		l.want(fmt.Sprintf("the pack that the sonde shares, while readers learn, after %d writes", writes), len(l.keys(shared)), before)
		if err := next.pass(t.Context(), now.Add(3*time.Hour)); err != nil {
			t.Fatal(err)
		}
		stop()
		l.want(fmt.Sprintf("removals after %d writes", writes), l.waiting(next), 0)
		l.gone()
		l.told(fmt.Sprintf("after %d writes", writes))
		if finished {
			if writes < 8 {
				t.Errorf("it took %d writes only", writes)
			}
			return
		}
	}
}
