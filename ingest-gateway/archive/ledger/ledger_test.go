// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/e2e/parts"
	"github.com/substorm/substorm/ingest-gateway/archive/ledger"
	"github.com/substorm/substorm/internal/wire"
)

// vanish leaves the gateway as a kill between two steps does: nothing is closed.
func (g *gatewayLife) vanish(t *testing.T) {
	t.Helper()
	g.stopLedger()
	if err := <-g.ledgerStopped; err != nil {
		t.Error(err)
	}
}

// announceObjects receives n objects at an instant, whole.
func (g *gatewayLife) announceObjects(t *testing.T, name string, n int, at time.Time) {
	t.Helper()
	for i := range n {
		notice := noticeOf(name+string(rune('a'+i)), g.incarnation, at)
		g.ledger.ObjectBegun(camera, at)
		g.ledger.ObjectBytesRead(camera, at, int(notice.Size))
		g.ledger.Stored(camera, at, notice.Size, notice.Digest)
		err := g.announcer.Notice(t.Context(), notice, func(err error) {
			if err == nil {
				g.ledger.Received(camera, at, notice.Size, notice.Digest)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		g.ledger.Acknowledged(camera, at)
	}
}

func open(t *testing.T, server *parts.NATSServer, dir, incarnation string) *gatewayLife {
	t.Helper()
	g, err := openGateway(context.WithoutCancel(t.Context()), server.URL(), dir, incarnation)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// awaitEntry waits until an entry of the ledger is as ok says, and returns it.
func awaitEntry(t *testing.T, js jetstream.JetStream, instrument string, day wire.Day, step wire.Step, ok func(wire.LedgerEntry) bool) wire.LedgerEntry {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), wire.LedgerBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	var e wire.LedgerEntry
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		v, err := kv.Get(t.Context(), wire.LedgerKey(instrument, day, step, gateway))
		if err != nil {
			continue
		}
		if e, err = wire.DecodeLedgerEntry(v.Value()); err != nil {
			t.Fatal(err)
		}
		if ok(e) {
			return e
		}
	}
	t.Fatalf("%s of %s on %s is %+v", step, instrument, day, e)
	return e
}

// TestDayForgottenAndBack: a day that was dropped from memory and is counted in again goes on where it was.
func TestDayForgottenAndBack(t *testing.T) {
	server := parts.NATS(t, parts.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	parts.CreateSite(t, js, site)
	dir := t.TempDir()
	g := open(t, server, dir, "one")
	old := time.Now().Add(-10 * 24 * time.Hour)
	day := wire.DayOf(old)
	g.announceObjects(t, "before", 3, old)
	g.ledger.Unfinished(camera, old, wire.CauseReset, 7)
	g.ledger.DatagramsDropped(camera, old, wire.CauseKernelBuffer, 5)
	first := awaitEntry(t, js, camera, day, wire.StepReceived, func(e wire.LedgerEntry) bool {
		return e.Incarnations["one"].Objects == 3 && e.Incarnations["one"].Acknowledged == 3 && e.Incarnations["one"].Dropped != nil
	})
	for deadline := time.Now().Add(30 * time.Second); g.ledger.Cells() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the day stays in memory")
		}
		g.ledger.Prune(time.Now().Add(72 * time.Hour))
	}
	g.announceObjects(t, "after", 2, old)
	g.ledger.Unfinished(camera, old, wire.CauseReset, 7)
	both := awaitEntry(t, js, camera, day, wire.StepReceived, func(e wire.LedgerEntry) bool {
		return e.Incarnations["one"].Objects >= 5 && e.Incarnations["one"].Acknowledged >= 5 && e.Incarnations["one"].UnfinishedBytes >= 14
	}).Incarnations["one"]
	want := wire.Totals{
		Objects: 5, ObjectBytes: both.ObjectBytes, Digest: both.Digest, Acknowledged: 5,
		Unfinished: map[wire.Cause]uint64{wire.CauseReset: 2}, UnfinishedBytes: 14,
		Dropped: map[wire.Cause]uint64{wire.CauseKernelBuffer: 5},
	}
	if diff := cmp.Diff(want, both); diff != "" || both.Digest == first.Incarnations["one"].Digest {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	// A kill now must not lose what was adopted.
	g.vanish(t)
	h := open(t, server, dir, "two")
	defer h.close()
	final := awaitEntry(t, js, camera, day, wire.StepAnnounced, func(e wire.LedgerEntry) bool { return e.Incarnations["one"].Objects == 5 })
	if got := final.Incarnations["one"]; got.Digest != both.Digest || got.ObjectBytes != both.ObjectBytes {
		t.Errorf("after a kill: announced %+v, received before %+v", got, both)
	}
}

// TestTrimmed: what was acknowledged stays announced where the stream was emptied before the recount.
func TestTrimmed(t *testing.T) {
	server := parts.NATS(t, parts.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	parts.CreateSite(t, js, site)
	dir := t.TempDir()
	g := open(t, server, dir, "one")
	now := time.Now()
	g.announceObjects(t, "x", 4, now)
	g.vanish(t)
	s, err := js.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := open(t, server, dir, "two")
	defer h.close()
	h.announceObjects(t, "y", 1, now)
	awaitEntry(t, js, camera, wire.DayOf(now), wire.StepReceived, func(e wire.LedgerEntry) bool {
		return e.Incarnations["one"].Objects == 4 && e.Incarnations["two"].Objects == 1
	})
}

// TestCountersLost: a power cut left nothing in the counters of an incarnation that wrote to have received what waits in
// the spool, where the next one counts it. It is counted once, and what was written of receipts stays.
func TestCountersLost(t *testing.T) {
	server := parts.NATS(t, parts.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	parts.CreateSite(t, js, site)
	dir := t.TempDir()
	now := time.Now()
	old := now.Add(-24 * time.Hour)
	g := open(t, server, dir, "one")
	g.announceObjects(t, "x", 2, old)
	for i := range 3 {
		n := noticeOf("spooled"+string(rune('a'+i)), "one", now)
		g.ledger.ObjectBegun(camera, now)
		g.ledger.Received(camera, now, n.Size, n.Digest)
		g.ledger.Acknowledged(camera, now)
	}
	g.ledger.Unfinished(camera, now, wire.CauseReset, 7)
	awaitEntry(t, js, camera, wire.DayOf(now), wire.StepReceived, func(e wire.LedgerEntry) bool {
		return e.Incarnations["one"].Objects == 3 && e.Incarnations["one"].Acknowledged == 3 && e.Incarnations["one"].Unfinished != nil
	})
	awaitEntry(t, js, camera, wire.DayOf(old), wire.StepAnnounced, func(e wire.LedgerEntry) bool { return e.Incarnations["one"].Objects == 2 })
	g.vanish(t)
	if err := os.Truncate(filepath.Join(dir, "one.counters"), 0); err != nil {
		t.Fatal(err)
	}
	h := open(t, server, dir, "two")
	defer h.close()
	e := awaitEntry(t, js, camera, wire.DayOf(now), wire.StepReceived, func(e wire.LedgerEntry) bool { return e.Incarnations["one"].Objects == 0 })
	want := wire.Totals{Acknowledged: 3, Unfinished: map[wire.Cause]uint64{wire.CauseReset: 1}, UnfinishedBytes: 7}
	if diff := cmp.Diff(want, e.Incarnations["one"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	awaitEntry(t, js, camera, wire.DayOf(old), wire.StepReceived, func(e wire.LedgerEntry) bool {
		return e.Incarnations["one"].Objects == 2 && e.Incarnations["one"].Acknowledged == 2
	})
}

// TestStreamMadeAnew: positions in a stream that is gone mean nothing in the new one.
func TestStreamMadeAnew(t *testing.T) {
	server := parts.NATS(t, parts.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	parts.CreateSite(t, js, site)
	dir := t.TempDir()
	now := time.Now()
	g := open(t, server, dir, "one")
	g.announceObjects(t, "x", 20, now)
	if err := g.close(); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), wire.NoticeStream(site)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond) // a stream's epoch is the millisecond of its creation
	parts.CreateSite(t, js, site)
	g = open(t, server, dir, "two")
	g.announceObjects(t, "y", 3, now)
	g.vanish(t)
	h := open(t, server, dir, "three")
	defer h.close()
	awaitEntry(t, js, camera, wire.DayOf(now), wire.StepAnnounced, func(e wire.LedgerEntry) bool {
		return e.Incarnations["one"].Objects == 20 && e.Incarnations["two"].Objects == 3
	})
}

// TestLedgerMadeAnew: a gateway that lives on writes once more what it counted, its lives before included, into a bucket
// that was lost, also of what does not change any more.
func TestLedgerMadeAnew(t *testing.T) {
	server := parts.NATS(t, parts.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	parts.CreateSite(t, js, site)
	dir := t.TempDir()
	now := time.Now()
	g := open(t, server, dir, "one")
	g.announceObjects(t, "x", 4, now)
	if err := g.close(); err != nil {
		t.Fatal(err)
	}
	g = open(t, server, dir, "two")
	defer g.close()
	g.announceObjects(t, "y", 3, now)
	g.announceObjects(t, "z", 2, now.Add(-24*time.Hour))
	all := func(step wire.Step) {
		t.Helper()
		awaitEntry(t, js, camera, wire.DayOf(now), step, func(e wire.LedgerEntry) bool {
			return e.Incarnations["one"].Objects == 4 && e.Incarnations["two"].Objects == 3
		})
		awaitEntry(t, js, camera, wire.DayOf(now.Add(-24*time.Hour)), step, func(e wire.LedgerEntry) bool { return e.Incarnations["two"].Objects == 2 })
	}
	all(wire.StepReceived)
	if err := js.DeleteKeyValue(t.Context(), wire.LedgerBucket(site)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond) // a stream's epoch is the millisecond of its creation
	parts.CreateSite(t, js, site)
	all(wire.StepReceived)
	all(wire.StepAnnounced)
}

// TestDamagedFiles: whatever a power cut left, the ledger opens, and counts what the streams hold.
func TestDamagedFiles(t *testing.T) {
	server := parts.NATS(t, parts.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	parts.CreateSite(t, js, site)
	dir := t.TempDir()
	now := time.Now()
	g := open(t, server, dir, "one")
	g.announceObjects(t, "x", 6, now)
	g.vanish(t)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		damaged := filepath.Join(t.TempDir(), "d")
		if err := os.MkdirAll(damaged, 0o700); err != nil {
			t.Fatal(err)
		}
		files, _ := filepath.Glob(filepath.Join(dir, "one.*"))
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > 0 && random.IntN(2) == 0 {
				data = data[:random.IntN(len(data))]
			}
			for range random.IntN(20) {
				if len(data) > 0 && strings.HasSuffix(file, "counters") {
					data[random.IntN(min(len(data), 70_000))] = byte(random.Int())
				}
			}
			if err := os.WriteFile(filepath.Join(damaged, filepath.Base(file)), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l, err := ledger.Open(ledger.Config{Dir: damaged, Site: site, Gateway: gateway, Incarnation: "next"})
		if err != nil {
			t.Fatalf("case %d: %v", i, err)
		}
		_ = l
	}
	// One case to its end: no counters, no checkpoint that can be read.
	for _, file := range []string{"one.counters", "one.checkpoint"} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := open(t, server, dir, "two")
	defer h.close()
	awaitEntry(t, js, camera, wire.DayOf(now), wire.StepReceived, func(e wire.LedgerEntry) bool { return e.Incarnations["one"].Objects == 6 })
}

// TestCounting: what is counted from many goroutines on two days is all there, and nothing of it needs a network.
func TestCounting(t *testing.T) {
	l, err := ledger.Open(ledger.Config{Dir: t.TempDir(), Site: site, Gateway: gateway, Incarnation: "one"})
	if err != nil {
		t.Fatal(err)
	}
	evening := time.Date(2026, 11, 20, 23, 59, 59, 999_999_999, time.UTC)
	morning := evening.Add(time.Nanosecond)
	var counting sync.WaitGroup
	for i := range 8 {
		counting.Add(1)
		go func() {
			defer counting.Done()
			for range 1000 {
				at := evening
				if i%2 == 1 {
					at = morning
				}
				l.Received(camera, at, 3, wire.Digest{31: 1})
				l.Stored(camera, at, 3, wire.Digest{31: 1})
				l.DatagramsDropped(wire.UnknownInstrument, at, wire.CauseUnknownSource, 2)
				p := l.Publish()
				p.AnnouncedDatagrams(sounder, at, 10, 1000, 1)
			}
		}()
	}
	counting.Wait()
	for _, day := range []wire.Day{"2026-11-20", "2026-11-21"} {
		objects := wire.Totals{Objects: 4000, ObjectBytes: 12000, Digest: wire.Digest{30: 4000 >> 8, 31: 4000 & 255}}
		datagrams := wire.Totals{Datagrams: 40_000, DatagramBytes: 4_000_000}
		for _, want := range []struct {
			instrument string
			step       wire.Step
			totals     wire.Totals
		}{
			{camera, wire.StepReceived, objects}, {camera, wire.StepStored, objects}, {camera, wire.StepAnnounced, wire.Totals{}},
			{sounder, wire.StepReceived, datagrams}, {sounder, wire.StepStored, wire.Totals{}}, {sounder, wire.StepAnnounced, datagrams},
			{wire.UnknownInstrument, wire.StepReceived, wire.Totals{Dropped: map[wire.Cause]uint64{wire.CauseUnknownSource: 8000}}},
		} {
			if diff := cmp.Diff(want.totals, l.Totals(want.instrument, day, want.step)); diff != "" {
				t.Errorf("%s of %s on %s (-want +got):\n%s", want.step, want.instrument, day, diff)
			}
		}
	}
}
