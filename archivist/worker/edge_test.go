// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// gauge returns the sum of a metric's values.
func gauge(t *testing.T, cfg Config, name string) float64 {
	t.Helper()
	families, err := cfg.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// lag returns how many messages of a stream are not archived, as its last trim measured.
func lag(t *testing.T, cfg Config, name string) float64 {
	t.Helper()
	families, err := cfg.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "substorm_archivist_lag_messages" {
			continue
		}
		for _, m := range f.GetMetric() {
			if labels := m.GetLabel(); len(labels) == 1 && labels[0].GetValue() == name {
				return m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// Data that a newer Substorm wrote is neither skipped nor overwritten: the old archivist stops before it, says
// so, and leaves the lease to a newer one.
func TestNewerFormat(t *testing.T) {
	s := start(t)
	newer := []byte(`{"format":2,"what":"nobody knows yet"}`)
	for name, prepare := range map[string]func(*testing.T, *lab){
		"notice": func(t *testing.T, l *lab) {
			publishRaw(t, l, wire.NoticeSubject(l.site, camera), newer, nil)
		},
		"telemetry": func(t *testing.T, l *lab) {
			publishRaw(t, l, wire.ObservationSubject(l.site, mag, channel), []byte{8, 2}, map[string]string{wire.HeaderFormat: "2"})
		},
		"telemetry-body": func(t *testing.T, l *lab) {
			publishRaw(t, l, wire.ObservationSubject(l.site, mag, channel), []byte{8, 2}, nil)
		},
		"notice-cursor":  func(t *testing.T, l *lab) { putCursor(t, l, wire.NoticeCursorKey, newer) },
		"segment-cursor": func(t *testing.T, l *lab) { putCursor(t, l, wire.SegmentCursorKey(mag, channel), newer) },
		"sweep-cursor":   func(t *testing.T, l *lab) { putCursor(t, l, wire.SweepCursorKey, newer) },
		"manifest": func(t *testing.T, l *lab) {
			z, err := zstd.NewWriter(nil)
			if err != nil {
				t.Fatal(err)
			}
			put(t, l, wire.ManifestPartKey(l.site, camera, wire.DayOf(time.Now()), 1), string(z.EncodeAll(append(newer, '\n'), nil)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := s.site(t, name)
			prepare(t, l)
			n := l.send(camera, time.Now(), "frame")
			l.telemetry(mag, time.Now(), 1)
			log := &lockedBuffer{}
			cfg := l.config("old")
			cfg.Log = logTo(log)
			l.run(cfg)
			l.await("it stops with a word about the newer format", func() bool { return strings.Contains(log.String(), wire.ErrNewerFormat.Error()) })
			l.await("it leaves the lease", func() bool { return !l.held() })
			if got := l.store; got == nil || !slices.Contains(l.stored(camera), n.Key) {
				t.Error("the object is gone")
			}
			// Nothing was passed over: the streams hold what came, the cursors stand before it.
			if name == "notice" {
				if c := l.cursor(wire.NoticeCursorKey); c.Next > 1 {
					t.Errorf("the cursor of notices went past the newer one: %+v", c)
				}
			}
			if strings.HasPrefix(name, "telemetry") {
				if c := l.cursor(wire.ObservationCursorKey); c.Next > 1 {
					t.Errorf("the cursor of telemetry went past the newer one: %+v", c)
				}
				want(t, "segments", 0, len(l.stored(mag)))
			}
		})
	}
}

// Nonsense is counted and logged, and everything else continues.
func TestNonsense(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now()
	publishRaw(t, l, wire.NoticeSubject(l.site, camera), []byte("hello"), nil)
	other := l.notice("another", object{now, "of another subject"})
	data, err := wire.Encode(other)
	if err != nil {
		t.Fatal(err)
	}
	publishRaw(t, l, wire.NoticeSubject(l.site, camera), data, nil)
	bad := l.notice("UPPER_case", object{now, "escape"})
	if data, err = wire.Encode(bad); err != nil {
		t.Fatal(err)
	}
	publishRaw(t, l, wire.NoticeSubject(l.site, "UPPER_case"), data, nil)
	publishRaw(t, l, wire.ObservationSubject(l.site, mag, channel), []byte{0xff, 0xff, 0xff}, nil)
	publishRaw(t, l, "obs."+l.site+".mag-1", []byte("x"), nil)
	publishRaw(t, l, wire.ObservationSubject(l.site, "Unknown", "Raw_"), []byte("x"), nil)
	l.telemetry(mag, now, 3)
	key := l.send(camera, now, "frame").Key
	cfg := l.config("a")
	l.run(cfg)
	l.await("what makes sense is listed", func() bool { return len(l.listed(camera)) == 1 && len(l.datagrams(mag)) == 3 })
	want(t, "listed", []string{key}, l.keys(camera, wire.StateCurrent))
	want(t, "refused notices", 3, gauge(t, cfg, "substorm_manifest_notices_refused_total"))
	today := wire.DayOf(now)
	l.await("refused telemetry is counted", func() bool {
		return l.ledger(mag, today, wire.StepStored).Dropped[wire.CauseUndecodable] == 1 &&
			l.ledger(wire.UnknownInstrument, today, wire.StepStored).Dropped[wire.CauseUndecodable] == 2
	})
	want(t, "refused telemetry", 3, gauge(t, cfg, "substorm_segment_datagrams_dropped_total"))
	want(t, "failures", 0, gauge(t, cfg, "substorm_archivist_failures_total"))
}

// Both streams are deleted and made again: what was archived stays listed once,
// what comes then is archived too, and what was stored is announced again.
func TestStreamsMadeAnew(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now()
	l.run(l.config("a"))
	first := l.send(camera, now, "frame").Key
	for range 10 {
		l.telemetry(mag, now, 2)
	}
	l.await("the first are listed", func() bool { return len(l.listed(camera)) == 1 && len(l.datagrams(mag)) == 20 })
	for _, name := range []string{wire.NoticeStream(l.site), wire.ObservationStream(l.site)} {
		if err := l.js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	forgotten := l.putObject(camera, object{now.Add(time.Second), "stored while there was no stream"}).Key
	nextEpoch()
	testenv.CreateSite(t, l.js, l.site)
	l.leaseTTL()
	second := l.send(camera, now.Add(2*time.Second), "frame after").Key
	for range 3 {
		l.telemetry(mag, now, 2)
	}
	l.await("the next are listed", func() bool { return len(l.listed(camera)) == 3 && len(l.datagrams(mag)) == 26 })
	want(t, "listed", sorted(first, forgotten, second), l.keys(camera, wire.StateCurrent))
	want(t, "datagrams", numbers(13, 2), l.datagrams(mag))
	l.await("the ledger counts both incarnations", func() bool { return l.ledger(mag, wire.DayOf(now), wire.StepStored).Datagrams == 26 })
}

// A cut that was planned when its stream was deleted is announced if it was stored, and counted as
// lost if it was not.
func TestPlannedCutOfAStreamThatIsGone(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now()
	planned := wire.SegmentCursor{Epoch: "0ld", Next: 5, PlannedDay: wire.DayOf(now),
		Planned: &wire.SegmentRange{Channel: channel, Epoch: "0ld", First: 5, Last: 9, Datagrams: 8}}
	data, err := wire.Encode(planned)
	if err != nil {
		t.Fatal(err)
	}
	putCursor(t, l, wire.SegmentCursorKey(mag, channel), data)
	putCursor(t, l, wire.SegmentCursorKey("mag-2", channel), data)
	key := wire.SegmentKey(l.site, mag, channel, wire.DayOf(now), "0ld", 5, 9)
	n := l.notice(mag, object{now, "a segment that was stored"})
	n.ID, n.Key, n.Segment = key, key, &wire.SegmentRange{Channel: channel, Epoch: "0ld", First: 5, Last: 9, Datagrams: 7, DatagramBytes: 70, Undecodable: 1}
	metadata, err := wire.ObjectMetadata(n)
	if err != nil {
		t.Fatal(err)
	}
	body := strings.NewReader("a segment that was stored")
	if err := l.store.Put(t.Context(), key, body, body.Size(), objectstore.PutOptions{Metadata: metadata}); err != nil {
		t.Fatal(err)
	}
	cfg := l.config("a")
	l.run(cfg)
	l.await("it is listed", func() bool { return len(l.listed(mag)) == 1 })
	of := func(instrument string) wire.Totals { return l.ledger(instrument, wire.DayOf(now), wire.StepStored) }
	l.await("both are counted", func() bool { return of(mag).Datagrams == 7 && of("mag-2").Dropped[wire.CauseStreamGone] == 8 })
	want(t, "undecodable", 1, of(mag).Dropped[wire.CauseUndecodable])
	want(t, "lost", 9, gauge(t, cfg, "substorm_segment_datagrams_dropped_total"))
	want(t, "of the other", 0, len(l.stored("mag-2")))
}

// Only what is archived and older than its retention leaves the streams; when a
// stream is nearly full, what is archived leaves before.
func TestTrim(t *testing.T) {
	l := start(t).site(t, "thule")
	l.settings["open"] = wire.InstrumentEntry{SegmentAgeMillis: time.Hour.Milliseconds()}
	now := time.Now()
	cfg := l.config("a")
	cfg.ObservationRetention, cfg.NoticeRetention, cfg.TrimInterval = time.Second, time.Hour, 100*time.Millisecond
	stop := l.run(cfg)
	for range 20 {
		l.telemetry(mag, now, 1)
	}
	l.telemetry("open", now, 1) // sequence 21 stays open
	for range 20 {
		l.telemetry(mag, now, 1)
	}
	l.send(camera, now, "frame")
	state := func(name string) jetstream.StreamState {
		_, state, err := stream.Epoch(t.Context(), l.js, name)
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	l.await("what is archived before the open message is trimmed", func() bool { return state(wire.ObservationStream(l.site)).FirstSeq == 21 })
	l.await("the rest is archived", func() bool { return len(l.datagrams(mag)) == 40 })
	time.Sleep(time.Until(state(wire.ObservationStream(l.site)).LastTime.Add(cfg.ObservationRetention))) // the retention of all is over
	// A trim measures the lag as it begins. When one has measured the second message, one that began after the retention has ended.
	for i := range 2 {
		l.telemetry("open", now, 1)
		l.await("the lag is measured", func() bool { return lag(t, cfg, wire.ObservationStream(l.site)) >= float64(22+i) })
	}
	want(t, "messages", 23, state(wire.ObservationStream(l.site)).Msgs)
	want(t, "notices", 1, state(wire.NoticeStream(l.site)).FirstSeq)
	stop()

	// The archived half of a full stream makes space although it is young.
	cfg = l.config("b")
	cfg.ObservationRetention, cfg.TrimInterval = time.Hour, 100*time.Millisecond
	l.settings["open"] = wire.InstrumentEntry{SegmentAgeMillis: 100}
	s, err := l.js.Stream(t.Context(), wire.ObservationStream(l.site))
	if err != nil {
		t.Fatal(err)
	}
	full := s.CachedInfo().Config
	full.MaxBytes = int64(state(wire.ObservationStream(l.site)).Bytes)
	if _, err := l.js.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	l.run(cfg)
	l.await("there is space", func() bool {
		st := state(wire.ObservationStream(l.site))
		return st.Msgs > 0 && float64(st.Bytes) <= fullFrom*float64(full.MaxBytes)
	})
	l.await("all is archived", func() bool { return len(l.datagrams("open")) == 3 })
}

// A clock that the NATS server's does not agree with trims nothing for its age.
func TestTrimByTwoClocks(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now()
	n := l.send(camera, now, "frame")
	epoch, state, err := stream.Epoch(t.Context(), l.js, wire.NoticeStream(l.site))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := stream.AcquireLease(t.Context(), l.kv(wire.LeaseBucket(l.site)), "trimmer", wire.Lease{Holder: "a", Incarnation: "1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(context.WithoutCancel(t.Context()))
	trim := &trimmer{js: l.js, stream: wire.NoticeStream(l.site), subjects: wire.NoticeStreamSubjects(l.site), retention: time.Millisecond,
		archived: func() stream.Position { return stream.Position{Epoch: epoch, Next: state.LastSeq + 1} },
		lease:    lease, log: slog.New(slog.DiscardHandler), metrics: newMetrics(prometheus.NewRegistry())}
	held := func() uint64 {
		t.Helper()
		_, state, err := stream.Epoch(t.Context(), l.js, wire.NoticeStream(l.site))
		if err != nil {
			t.Fatal(err)
		}
		return state.Msgs
	}
	if err := trim.trim(t.Context(), now.Add(72*time.Hour)); !errors.Is(err, stream.ErrClock) || held() != 1 {
		t.Errorf("by a clock of three days ahead: %v, and the stream holds %d notices of 1 (%s)", err, held(), n.ID)
	}
	if err := trim.trim(t.Context(), time.Now()); err != nil || held() != 0 {
		t.Errorf("by the right clock: %v, and the stream holds %d notices", err, held())
	}
}

// While the store or JetStream is away nothing is archived and nothing lost.
func TestBackendsAway(t *testing.T) {
	s := start(t)
	s.minio = testenv.MinIO(t, testenv.MinIOOptions{}) // is killed
	l := s.site(t, "thule")
	now := time.Now()
	l.run(l.config("a"))
	sent := 0
	send := func() {
		for range 5 {
			l.send(camera, now.Add(time.Duration(sent)*time.Millisecond), fmt.Sprint("frame ", sent))
			l.telemetry(mag, now, 2)
			sent++
		}
	}
	complete := func() bool { return len(l.listed(camera)) == sent && len(l.datagrams(mag)) == 2*sent }
	send()
	s.minio.Kill()
	s.minio.Start()
	l.await("the first are archived", complete)
	send()
	s.nats.Kill()
	time.Sleep(2 * leaseTTL) // long enough for the lease to be lost
	s.nats.Start()
	l.await("the next are archived", complete)
	s.minio.Pause()
	for range 5 {
		l.telemetry(mag, now, 2)
	}
	time.Sleep(2 * leaseTTL) // an outage of the same length
	s.minio.Continue()
	l.await("all telemetry is archived", func() bool { return len(l.datagrams(mag)) == 2*(sent+5) })
	want(t, "datagrams", numbers(sent+5, 2), l.datagrams(mag))
	want(t, "objects", sent, len(l.keys(camera, wire.StateCurrent)))
}

func publishRaw(t *testing.T, l *lab, subject string, data []byte, headers map[string]string) {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Data = data
	for name, value := range headers {
		m.Header.Set(name, value)
	}
	if _, err := l.js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func putCursor(t *testing.T, l *lab, key string, value []byte) {
	t.Helper()
	kv, err := l.js.KeyValue(t.Context(), wire.CursorBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func (l *lab) cursor(key string) wire.StreamCursor {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.CursorBucket(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	e, err := kv.Get(l.t.Context(), key)
	if err != nil {
		return wire.StreamCursor{}
	}
	c, err := wire.Decode[wire.StreamCursor](bytes.Clone(e.Value()))
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

func (l *lab) held() bool {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.LeaseBucket(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	_, err = kv.Get(context.WithoutCancel(l.t.Context()), wire.ArchivistLease)
	return err == nil
}

// stuckStore never finishes to list the manifests of an instrument.
type stuckStore struct {
	objectstore.Store
	prefix string
	stuck  chan struct{}
	once   *sync.Once
}

func (s stuckStore) List(ctx context.Context, prefix, after string) iter.Seq2[objectstore.Info, error] {
	if !strings.HasPrefix(prefix, s.prefix) {
		return s.Store.List(ctx, prefix, after)
	}
	return func(yield func(objectstore.Info, error) bool) {
		s.once.Do(func() { close(s.stuck) })
		<-ctx.Done()
		yield(objectstore.Info{}, ctx.Err())
	}
}

// An archivist that is stopped while it works on a batch of notices closes what it has and passes
// nothing over.
func TestStopInTheMiddleOfABatch(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now()
	first := l.send(camera, now, "frame").Key
	second := l.send("allsky-2", now, "frame").Key
	third := l.send(camera, now.Add(time.Second), "another frame").Key
	cfg := l.config("a")
	cfg.PartInterval = time.Hour
	store := stuckStore{l.store, wire.ManifestInstrumentPrefix(l.site, "allsky-2"), make(chan struct{}), new(sync.Once)}
	cfg.Store = store
	stop := l.run(cfg)
	<-store.stuck
	stop()
	want(t, "listed by the first", []string{first}, l.keys(camera, wire.StateCurrent))
	l.run(l.config("b"))
	l.await("all are listed", func() bool { return len(l.listed(camera)) == 2 && len(l.listed("allsky-2")) == 1 })
	want(t, "listed", sorted(first, third), l.keys(camera, wire.StateCurrent))
	want(t, "listed of the other", []string{second}, l.keys("allsky-2", wire.StateCurrent))
}
