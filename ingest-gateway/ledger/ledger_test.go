// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/ingest-gateway/ledger"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// vanish leaves the gateway as a kill between two steps does: nothing is closed.
func (g *gatewayIncarnation) vanish(t *testing.T) {
	t.Helper()
	g.stopLedger()
	if err := <-g.ledgerStopped; err != nil {
		t.Error(err)
	}
}

// announceObjects receives n objects at an instant, whole.
func (g *gatewayIncarnation) announceObjects(t *testing.T, name string, n int, at time.Time) {
	t.Helper()
	for i := range n {
		notice := noticeOf(name+string(rune('a'+i)), g.incarnation, at)
		g.ledger.ObjectBegun(camera, at)
		g.ledger.ObjectBytesRead(camera, at, int(notice.Size))
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

func open(t *testing.T, server *testenv.NATSServer, dir, incarnation string) *gatewayIncarnation {
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
	for range testenv.Attempts() {
		v, err := kv.Get(t.Context(), wire.LedgerKey(instrument, day, step, gateway))
		if err != nil {
			continue
		}
		if e, err = wire.Decode[wire.LedgerEntry](v.Value()); err != nil {
			t.Fatal(err)
		}
		if ok(e) {
			return e
		}
	}
	t.Fatalf("%s of %s on %s is %+v", step, instrument, day, e)
	return e
}

// awaitEnded waits until what ended is written on a volume, and the ledger has all of it.
func awaitEnded(t *testing.T, dir string) {
	t.Helper()
	var ended []byte
	var err error
	for range testenv.Attempts() {
		ended, err = os.ReadFile(filepath.Join(dir, "ended.json"))
		if err == nil && strings.Contains(string(ended), `"epoch"`) { // the epoch of the ledger that has it
			return
		}
	}
	t.Fatalf("what ended was not written: %s %v", ended, err)
}

// TestDayForgottenAndBack: a day that was dropped from memory and is counted in again continues where it
// was.
func TestDayForgottenAndBack(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
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
	testenv.Await(t, "the day leaves memory", func() bool {
		if err := g.ledger.Prune(time.Now().Add(72 * time.Hour)); err != nil {
			t.Fatal(err)
		}
		return g.ledger.Cells() == 0
	})
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
	// A kill now must not lose what was counted before.
	g.vanish(t)
	h := open(t, server, dir, "two")
	defer h.close()
	h.announceObjects(t, "more", 1, old)
	final := awaitEntry(t, js, camera, day, wire.StepReceived, func(e wire.LedgerEntry) bool { return e.Incarnations["two"].Objects == 1 })
	if diff := cmp.Diff(both, final.Incarnations["one"]); diff != "" {
		t.Errorf("after a kill (-want +got):\n%s", diff)
	}
}

// TestDaysOfOtherSites: of a day that a mirror brings, which was over long ago, what the bucket has is forgotten, and the counts are not.
func TestDaysOfOtherSites(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	dir := t.TempDir()
	g := open(t, server, dir, "one")
	old := time.Now().Add(-1000 * 24 * time.Hour)
	guest, day := wire.GuestName("arctic", strings.Repeat("m", 63)), wire.DayOf(old)
	bring := func(g *gatewayIncarnation, n int) {
		for i := range n {
			g.ledger.ObjectBegun(guest, old)
			g.ledger.Received(guest, old, 5, wire.Digest{byte(i)})
			g.ledger.Acknowledged(guest, old)
		}
	}
	for round := range uint64(3) {
		bring(g, 2)
		awaitEntry(t, js, guest, day, wire.StepReceived, func(e wire.LedgerEntry) bool {
			return e.Incarnations["one"].Objects == 2*(round+1) && e.Incarnations["one"].Acknowledged == 2*(round+1)
		})
		if err := g.ledger.Prune(time.Now().Add(72 * time.Hour)); err != nil || g.ledger.Cells() != 1 {
			t.Fatalf("%d cells, %v", g.ledger.Cells(), err)
		}
	}
	g.vanish(t)
	h := open(t, server, dir, "two")
	defer h.close()
	bring(h, 1)
	awaitEntry(t, js, guest, day, wire.StepReceived, func(e wire.LedgerEntry) bool {
		return e.Incarnations["one"].Objects == 6 && e.Incarnations["two"].Objects == 1 && len(e.Incarnations["one"].Unfinished) == 0
	})
}

// TestCountersLost: a power cut left nothing in the counters of an incarnation. The totals that it wrote to the ledger
// stay, and are incomplete: it may have received more than is known.
func TestCountersLost(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	dir := t.TempDir()
	now := time.Now()
	g := open(t, server, dir, "one")
	g.announceObjects(t, "x", 3, now)
	g.ledger.Unfinished(camera, now, wire.CauseReset, 7)
	was := awaitEntry(t, js, camera, wire.DayOf(now), wire.StepReceived, func(e wire.LedgerEntry) bool {
		return e.Incarnations["one"].Objects == 3 && e.Incarnations["one"].Acknowledged == 3 && e.Incarnations["one"].Unfinished != nil
	}).Incarnations["one"]
	g.vanish(t)
	if err := os.Truncate(filepath.Join(dir, "one.counters"), 0); err != nil {
		t.Fatal(err)
	}
	h := open(t, server, dir, "two")
	defer h.close()
	h.announceObjects(t, "y", 1, now)
	e := awaitEntry(t, js, camera, wire.DayOf(now), wire.StepReceived, func(e wire.LedgerEntry) bool { return e.Incarnations["two"].Objects == 1 })
	was.Incomplete = true
	if diff := cmp.Diff(was, e.Incarnations["one"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMachineRestarted: counters of another boot of the machine may lack what had not got to the disk.
func TestMachineRestarted(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	dir := t.TempDir()
	now := time.Now()
	g := open(t, server, dir, "one")
	g.announceObjects(t, "x", 3, now)
	g.vanish(t)
	ledger.SetBoot(t, filepath.Join(dir, "one.counters"), "another")
	h := open(t, server, dir, "two")
	defer h.close()
	awaitEntry(t, js, camera, wire.DayOf(now), wire.StepReceived, func(e wire.LedgerEntry) bool {
		return e.Incarnations["one"].Objects == 3 && e.Incarnations["one"].Incomplete
	})
}

// TestKilledWhileItCloses: totals that are final on the volume, and not in the ledger when the process is killed, are
// written by the next incarnation, also where the ledger had all there was before.
func TestKilledWhileItCloses(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	dir, now := t.TempDir(), time.Now()
	one := open(t, server, dir, "one")
	one.announceObjects(t, "one", 1, now)
	one.vanish(t)
	two := open(t, server, dir, "two")
	awaitEnded(t, dir)
	two.vanish(t)
	two.ledger.ObjectBegun(sounder, now)
	two.ledger.Received(sounder, now, 7, wire.Digest{1})
	server.Pause()
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- two.ledger.Close(ctx) }()
	testenv.Await(t, "the counters are removed", func() bool {
		_, err := os.Stat(filepath.Join(dir, "two.counters"))
		return os.IsNotExist(err)
	})
	killed := t.TempDir() // the volume as a kill leaves it
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-closed; err == nil {
		t.Error("closed without NATS")
	}
	server.Continue()
	three := open(t, server, killed, "three")
	awaitEntry(t, js, sounder, wire.DayOf(now), wire.StepReceived, func(e wire.LedgerEntry) bool { return e.Incarnations["two"].Objects == 1 })
	if err := three.close(); err != nil {
		t.Error(err)
	}
}

// TestLedgerMadeAnew: a gateway that lives on writes once more what it counted, its incarnations before included, into a bucket
// that was lost, also of what does not change any more.
func TestLedgerMadeAnew(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	dir := t.TempDir()
	now := time.Now()
	g := open(t, server, dir, "one")
	g.announceObjects(t, "x", 4, now)
	if err := g.close(); err != nil {
		t.Fatal(err)
	}
	g = open(t, server, dir, "two")
	g.announceObjects(t, "y", 3, now)
	g.announceObjects(t, "z", 2, now.Add(-24*time.Hour))
	all := func() {
		t.Helper()
		awaitEntry(t, js, camera, wire.DayOf(now), wire.StepReceived, func(e wire.LedgerEntry) bool {
			return e.Incarnations["one"].Objects == 4 && e.Incarnations["two"].Objects == 3
		})
		awaitEntry(t, js, camera, wire.DayOf(now.Add(-24*time.Hour)), wire.StepReceived, func(e wire.LedgerEntry) bool { return e.Incarnations["two"].Objects == 2 })
	}
	makeAnew := func() {
		t.Helper()
		if err := js.DeleteKeyValue(t.Context(), wire.LedgerBucket(site)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // a stream's epoch is the millisecond of its creation
		testenv.CreateSite(t, js, site)
	}
	all()
	makeAnew()
	all()
	// The same, while the gateway is away: the next incarnation knows it from the volume.
	g.vanish(t)
	makeAnew()
	h := open(t, server, dir, "three")
	defer h.close()
	all()
}

// TestDamagedFiles: whatever a power cut left, the ledger opens.
func TestDamagedFiles(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{Unsynced: true})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, site)
	dir := t.TempDir()
	g := open(t, server, dir, "zero")
	g.announceObjects(t, "w", 2, time.Now())
	g.vanish(t)
	g = open(t, server, dir, "one") // ended.json has the one before
	g.announceObjects(t, "x", 6, time.Now())
	g.vanish(t)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		damaged := filepath.Join(t.TempDir(), "d")
		if err := os.MkdirAll(damaged, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"one.counters", "ended.json"} {
			data, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if random.IntN(2) == 0 {
				data = data[:random.IntN(len(data))]
			}
			for range random.IntN(20) {
				if len(data) > 0 {
					data[random.IntN(min(len(data), 70_000))] = byte(random.Int())
				}
			}
			if err := os.WriteFile(filepath.Join(damaged, file), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := ledger.Open(ledger.Config{Dir: damaged, Site: site, Gateway: gateway, Incarnation: "next"})
		if err != nil && !errors.Is(err, wire.ErrNewerFormat) && !errors.Is(err, wire.ErrMalformed) {
			t.Fatalf("case %d: %v", i, err)
		}
	}
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
				l.DatagramsDropped(wire.UnknownInstrument, at, wire.CauseUnknownSource, 2)
				l.DatagramsReceived(sounder, at, 10, 1000)
			}
		}()
	}
	counting.Wait()
	for _, day := range []wire.Day{"2026-11-20", "2026-11-21"} {
		objects := wire.Totals{Objects: 4000, ObjectBytes: 12000, Digest: wire.Digest{30: 4000 >> 8, 31: 4000 & 255}}
		datagrams := wire.Totals{Datagrams: 40_000, DatagramBytes: 4_000_000}
		for instrument, want := range map[string]wire.Totals{
			camera: objects, sounder: datagrams,
			wire.UnknownInstrument: {Dropped: map[wire.Cause]uint64{wire.CauseUnknownSource: 8000}},
		} {
			if diff := cmp.Diff(want, l.Totals(instrument, day)); diff != "" {
				t.Errorf("%s on %s (-want +got):\n%s", instrument, day, diff)
			}
		}
	}
}
