// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// recreateNotices deletes the notice stream by hand, and recreates it as the operator does.
func (l *lab) recreateNotices(change func(*jetstream.StreamConfig)) {
	l.t.Helper()
	if err := l.js.DeleteStream(l.t.Context(), wire.NoticeStream(l.site)); err != nil {
		l.t.Fatal(err)
	}
	testenv.CreateSite(l.t, l.js, l.site)
	l.leaseTTL()
	if change == nil {
		return
	}
	s, err := l.js.Stream(l.t.Context(), wire.NoticeStream(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	change(&cfg)
	if _, err := l.js.UpdateStream(l.t.Context(), cfg); err != nil {
		l.t.Fatal(err)
	}
}

// inStream returns the notices that the stream holds.
func (l *lab) inStream() (notices []wire.Notice, refilled int) {
	l.t.Helper()
	epoch, state, err := stream.Epoch(l.t.Context(), l.js, wire.NoticeStream(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	reader := stream.NewReader(l.js, stream.ReaderConfig{Stream: wire.NoticeStream(l.site), Epoch: epoch, Subject: wire.NoticeSubjects(l.site)})
	for next := uint64(1); next <= state.LastSeq; next, _ = reader.Position() {
		messages, err := reader.Next(l.t.Context(), 500, time.Second)
		if err != nil {
			l.t.Fatal(err)
		}
		for _, m := range messages {
			n, err := wire.Decode[wire.Notice](m.Data)
			if err != nil || m.Header.Get(wire.HeaderID) != n.MessageID() {
				l.t.Fatalf("message %d: %v, ce-id %q", m.Sequence, err, m.Header.Get(wire.HeaderID))
			}
			if m.Header.Get(wire.HeaderRefilled) != "" {
				refilled++
			}
			notices = append(notices, n)
		}
	}
	return notices, refilled
}

func ids(notices []wire.Notice) []string {
	var all []string
	for _, n := range notices {
		all = append(all, n.MessageID())
	}
	return all
}

func (l *lab) cursorBytes(key string) []byte {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.CursorBucket(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	e, err := kv.Get(l.t.Context(), key)
	if err != nil {
		return nil
	}
	return e.Value()
}

// refilled says whether the notice stream that there is was refilled.
func (l *lab) refilled() bool {
	l.t.Helper()
	epoch, _, err := stream.Epoch(l.t.Context(), l.js, wire.NoticeStream(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	cursor, err := wire.Decode[wire.RefillCursor](l.cursorBytes(wire.RefillCursorKey))
	return err == nil && cursor.Epoch == epoch && cursor.Done
}

// announceMany announces objects of three instruments that no test looks for, mixed and out of
// order, and returns their notices by receive time.
func (l *lab) announceMany(from time.Time, count int) []wire.Notice {
	l.t.Helper()
	var all []wire.Notice
	for i := range count {
		instrument := fmt.Sprint("camera-", i%3)
		all = append(all, l.notice(instrument, object{from.Add(time.Duration(i) * time.Second), fmt.Sprint("frame ", i, " of ", from)}))
	}
	for i := range all {
		n := all[(i*7+3)%len(all)] // 7 divides no count that is used here
		m, err := stream.NoticeMessage(n, "gateway-0")
		if err != nil {
			l.t.Fatal(err)
		}
		if _, err := l.js.PublishMsgAsync(m); err != nil {
			l.t.Fatal(err)
		}
	}
	<-l.js.PublishAsyncComplete()
	return all
}

func (l *lab) awaitListed(count int) {
	l.t.Helper()
	l.await(fmt.Sprint(count, " objects are listed"), func() bool {
		n := 0
		for i := range 3 {
			n += len(l.listed(fmt.Sprint("camera-", i)))
		}
		return n == count
	})
}

// A notice stream that was deleted is refilled: with all that was announced within the retention,
// once, in the order of receipt, and with nothing else.
func TestRefill(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	cfg := l.config("a")
	cfg.NoticeRetention = 30 * time.Hour
	stop := l.run(cfg)
	l.announceMany(now.Add(-40*time.Hour), 100) // too old
	recent := l.announceMany(now.Add(-time.Hour), 500)
	first := l.send(camera, now.Add(-2*time.Hour), "sent twice")
	second := l.send(camera, now.Add(-90*time.Minute), "sent twice")
	l.awaitListed(600)
	l.await("the duplicate is marked as a duplicate", func() bool { return len(l.keys(camera, wire.StateDuplicate)) == 1 && len(l.stored(camera)) == 1 })
	stop()

	l.recreateNotices(nil)
	live := l.send(camera, now, "sent after that") // before the archivist knows
	cfg.Metrics = prometheus.NewRegistry()
	stop = l.run(cfg)
	second.State = wire.StateDuplicate
	expected := []string{first.MessageID(), second.MessageID()}
	for _, n := range recent {
		expected = append(expected, n.MessageID())
	}
	l.await("the stream is refilled", func() bool { n, _ := l.inStream(); return len(n) >= len(expected)+1 })
	l.await("the live one is listed", func() bool { return len(l.listed(camera)) == 3 })
	got, refilled := l.inStream()
	if refilled != len(expected) || got[0].ID != live.ID {
		t.Errorf("%d notices are marked, the first is %s", refilled, got[0].ID)
	}
	want(t, "announced anew, in order", expected, ids(got[1:]))
	want(t, "counter", float64(len(expected)), gathered(t, cfg.Metrics.(prometheus.Gatherer), "substorm_notices_refilled_total"))

	// The next archivist does nothing of the kind, and nothing is listed twice.
	stop()
	cfg = l.config("b")
	l.run(cfg)
	another := l.send(camera, now.Add(time.Second), "sent last")
	l.await("the archivist works", func() bool { return slices.Contains(l.keys(camera, wire.StateCurrent), another.Key) })
	l.awaitListed(600)
	if got, _ := l.inStream(); len(got) != len(expected)+2 {
		t.Errorf("the stream holds %d notices, want %d", len(got), len(expected)+2)
	}
}

// Archivists that end in the middle leave the rest to the next, also where one did not
// come to note what it had announced.
func TestRefillGoesOn(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	stop := l.run(l.config("a"))
	all := l.announceMany(now.Add(-time.Hour), 3000)
	l.awaitListed(3000)
	stop()
	l.recreateNotices(func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond })

	kv, err := l.js.KeyValue(t.Context(), wire.CursorBucket(l.site))
	if err != nil {
		t.Fatal(err)
	}
	interrupted := 0
	for incarnation := range 100 {
		noted, err := kv.Watch(t.Context(), wire.RefillCursorKey, jetstream.UpdatesOnly())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- Run(ctx, l.config(fmt.Sprint("incarnation-", incarnation))) }()
		var before []byte
		for e := range noted.Updates() {
			cursor, err := wire.Decode[wire.RefillCursor](e.Value())
			if err != nil {
				t.Fatal(err)
			}
			if before = e.Value(); cursor.Announced > 0 || cursor.Done {
				cancel()
				break
			}
		}
		if err := noted.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if l.refilled() {
			break
		}
		interrupted++
		// As if it had been killed before it noted the last batches.
		if _, err := kv.Put(t.Context(), wire.RefillCursorKey, before); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("interrupted %d times", interrupted)
	if interrupted == 0 {
		t.Error("no archivist was interrupted: the test shows nothing")
	}
	l.run(l.config("last"))
	l.await("the stream is refilled", l.refilled)
	got, _ := l.inStream()
	expected, is := ids(all), ids(got)
	slices.Sort(expected)
	slices.Sort(is)
	want(t, "announced anew, each once", expected, is)
}

// The cursors are lost, and the notice stream is not: nothing is announced a second time, also by an archivist that
// continues for one that was stopped before it came to the end; all that the stream lacks is announced.
func TestRefillOfAStreamThatStands(t *testing.T) {
	l := start(t).site(t, "hub")
	l.recreateNotices(func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond })
	stop := l.run(l.config("a"))
	all := l.announceMany(time.Now().UTC().Add(-time.Hour), 300)
	l.awaitListed(300)
	stop()
	s, err := l.js.Stream(t.Context(), wire.NoticeStream(l.site))
	if err != nil {
		t.Fatal(err)
	}
	const lacking = 7
	if err := s.DeleteMsg(t.Context(), lacking); err != nil {
		t.Fatal(err)
	}
	if err := l.js.DeleteKeyValue(t.Context(), wire.CursorBucket(l.site)); err != nil {
		t.Fatal(err)
	}
	testenv.CreateSite(t, l.js, l.site)
	l.leaseTTL()
	noted, err := l.kv(wire.CursorBucket(l.site)).Watch(t.Context(), wire.RefillCursorKey, jetstream.UpdatesOnly())
	if err != nil {
		t.Fatal(err)
	}
	stop = l.run(l.config("b"))
	<-noted.Updates() // it has begun
	stop()
	l.run(l.config("c"))
	l.await("the stream is refilled", l.refilled)
	got, refilled := l.inStream()
	expected, is := ids(all), ids(got)
	slices.Sort(expected)
	slices.Sort(is)
	want(t, "in the stream, each once", expected, is)
	want(t, "announced anew", 1, refilled)
}

// If the stream is too small for all notices, the newest are announced again, and instruments find space.
func TestRefillLeavesSpace(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	stop := l.run(l.config("a"))
	all := l.announceMany(now.Add(-time.Hour), 1000)
	l.awaitListed(1000)
	stop()
	l.recreateNotices(func(c *jetstream.StreamConfig) { c.MaxBytes = 600 << 10 })
	cfg := l.config("b")
	l.run(cfg)
	l.await("the stream is refilled", l.refilled)
	got, _ := l.inStream()
	if len(got) < 100 || len(got) > 700 {
		t.Fatalf("%d notices are in a stream of 600 KiB", len(got))
	}
	want(t, "the newest", ids(all[len(all)-len(got):]), ids(got))
	left := gathered(t, cfg.Metrics.(prometheus.Gatherer), "substorm_notices_refill_left_out_total")
	want(t, "left out", float64(len(all)-len(got)), left)
	l.send(camera, now, "a frame")
}

// Gap records are in the stream of notices, and are nothing to the archive.
func TestGapRecordsAreNoNotices(t *testing.T) {
	l := start(t).site(t, "thule")
	cfg := l.config("a")
	l.run(cfg)
	now := time.Now().UTC()
	gap := func() {
		data, err := wire.Encode(wire.Gap{Consumer: "model", Stream: wire.NoticeStream(l.site), Reason: wire.GapRetention, At: now})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.js.Publish(t.Context(), wire.GapSubject(l.site, "model"), data); err != nil {
			t.Fatal(err)
		}
	}
	gap()
	l.send(camera, now, "a frame")
	gap()
	l.await("the object is listed", func() bool { return len(l.listed(camera)) == 1 })
	l.await("the cursor passes the gap records", func() bool {
		c, err := wire.Decode[wire.StreamCursor](l.cursorBytes(wire.NoticeCursorKey))
		return err == nil && c.Next == 4
	})
	forgotten := l.putObject(camera, object{now.Add(time.Second), "never announced"})
	l.await("the sweep goes on", func() bool { return slices.Contains(l.keys(camera, wire.StateCurrent), forgotten.Key) })
	want(t, "refused notices", 0, gathered(t, cfg.Metrics.(prometheus.Gatherer), "substorm_manifest_notices_refused_total"))
}
