// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// sent is a sender's list: what it has receipts for.
type sent struct {
	mu      sync.Mutex
	objects map[wire.Digest]int
	bytes   uint64
}

func (s *sent) receipted(object []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		s.objects = map[wire.Digest]int{}
	}
	s.objects[sha256.Sum256(object)]++
	s.bytes += uint64(len(object))
}

func (s *sent) sum() (digest wire.Digest) {
	for d, n := range s.objects {
		for range n {
			digest = digest.Plus(d)
		}
	}
	return digest
}

// awaitDrained waits until the archive holds what the sender's list says, each
// object once, and all columns of the ledger say the same.
func (l *lab) awaitDrained(t *testing.T, g *gateway, s *sent) {
	t.Helper()
	await(t, "the spool is empty", func() (bool, string) {
		v := g.metric("substorm_gateway_spool_objects")
		return v == "0", v
	})
	for _, step := range []wire.Step{wire.StepReceived, wire.StepStored, wire.StepAnnounced} {
		l.awaitLedger(t, "camera", step, func(totals wire.Totals) bool {
			return totals.Objects == uint64(len(s.objects)) && totals.ObjectBytes == s.bytes && totals.Digest == s.sum()
		})
	}
	l.awaitLedger(t, "camera", wire.StepReceived, func(totals wire.Totals) bool {
		return totals.Acknowledged == uint64(len(s.objects))
	})
	announced := map[wire.Digest]int{}
	for _, n := range l.notices(t) {
		announced[n.Digest]++
		if digest, size := l.digestOf(t, n.Record); digest != n.Digest || size != n.Size {
			t.Errorf("%s holds %s, %d bytes", n.ID, digest, size)
		}
	}
	for d := range s.objects {
		if announced[d] != 1 {
			t.Errorf("a receipted object is announced %d times", announced[d])
		}
	}
	// A pack that arrives after it was given up is reported a little later.
	await(t, "the bucket and the stream hold what has receipts", func() (bool, string) {
		stored := l.stored(t, "camera")
		return len(stored) == len(s.objects) && len(announced) == len(s.objects),
			fmt.Sprintf("the bucket holds %d objects, %d are announced, and %d have receipts", len(stored), len(announced), len(s.objects))
	})
}

// camera is an instrument whose receipts mean what acknowledge says.
func spoolingCamera(port int, acknowledge string) wire.InstrumentEntry {
	e := tcpInstrument("camera", port)
	e.Acknowledge = acknowledge
	return e
}

// outages are what may be away.
func (l *lab) outages() map[string]struct{ begin, over func() } {
	return map[string]struct{ begin, over func() }{
		"the store is killed": {l.minio.Kill, l.minio.Start},
		"the store is paused": {l.minio.Pause, l.minio.Continue},
		"JetStream is killed": {l.nats.Kill, l.nats.Start},
		"both are killed": {
			func() { l.minio.Kill(); l.nats.Kill() },
			func() { l.nats.Start(); l.minio.Start() },
		},
	}
}

// StoredOrSpooled and Spooled: receipts come while store and JetStream are
// away, for objects of any size, and everything is archived once they are back.
func TestSpoolWhileAway(t *testing.T) {
	t.Parallel()
	for _, acknowledge := range []string{"StoredOrSpooled", "Spooled"} {
		t.Run(acknowledge, func(t *testing.T) {
			t.Parallel()
			l := newLabAlone(t)
			port := testenv.FreePort(t)
			l.declare(t, spoolingCamera(port, acknowledge))
			g := l.start(t, gatewayOptions{})
			g.awaitReady()
			var s sent
			seed := uint64(0)
			receipt := func(sizes ...int) {
				for _, size := range sizes {
					seed++
					object := random(seed, size)
					mustSend(t, port, object)
					s.receipted(object)
				}
			}
			receipt(1000, 300_000)
			l.awaitDrained(t, g, &s)
			for name, outage := range l.outages() {
				t.Log(name)
				outage.begin()
				receipt(1000, 70_000, 1_000_000)
				receipt(33 << 20) // in parts
				receipt(10)
				for end := time.Now().Add(outageLasts(t)); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
					receipt(5000, 80_000)
				}
				if st := g.number("substorm_gateway_spool_objects"); st == 0 {
					t.Errorf("%s: nothing is in the spool", name)
				}
				outage.over()
				receipt(2000)
				l.awaitDrained(t, g, &s)
			}
			if err := g.stop(); err != nil {
				t.Error(err)
			}
			if left, err := filepath.Glob(filepath.Join(g.dir, "spool", "*.log")); err != nil || len(left) != 0 {
				t.Errorf("the empty spool holds %v, %v", left, err)
			}
		})
	}
}

// A gateway that is killed between receipt and archive, again and again, with its
// servers away and while they come back: every object is archived once, and the
// ledger agrees with the sender's list.
func TestKillBeforeDrained(t *testing.T) {
	t.Parallel()
	for _, acknowledge := range []string{"StoredOrSpooled", "Spooled"} {
		t.Run(acknowledge, func(t *testing.T) {
			t.Parallel()
			l := newLabAlone(t)
			port := testenv.FreePort(t)
			l.declare(t, spoolingCamera(port, acknowledge))
			dir := t.TempDir()
			g := l.start(t, gatewayOptions{dir: dir})
			g.awaitReady()
			await(t, "the registry is on the volume", func() (bool, string) {
				_, err := os.Stat(filepath.Join(dir, "registry.json"))
				return err == nil, ""
			})
			var s sent
			seed := uint64(0)
			receipt := func(n int) {
				for range n {
					seed++
					object := random(seed, 1000+rand.IntN(200_000))
					mustSend(t, port, object)
					s.receipted(object)
				}
			}
			again := func() {
				g.kill()
				g = l.start(t, gatewayOptions{dir: dir})
			}
			receipt(3)
			l.minio.Kill()
			l.nats.Kill()
			receipt(20)
			large := random(99, 20<<20)
			mustSend(t, port, large)
			s.receipted(large)
			again()
			receipt(10)
			again()
			l.nats.Start()                                                // what is stored may be announced, and nothing is stored
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond) // it is killed at any moment
			again()
			receipt(3)
			l.minio.Start()
			for range 4 { // while it drains
				time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // at any moment
				again()
				receipt(3)
			}
			g.awaitReady()
			l.awaitDrained(t, g, &s)
			if err := g.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Store and JetStream are away and the spool is full: the sender gets no receipt, but a reset. All
// objects that were receipted are archived in the end.
func TestSpoolFull(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	l.declare(t, spoolingCamera(port, "StoredOrSpooled"))
	g := l.start(t, gatewayOptions{flags: []string{"--spool-size", "3000000"}})
	g.awaitReady()
	l.minio.Kill()
	l.nats.Kill()
	var s sent
	refused := 0
	for seed := range uint64(20) {
		object := random(seed, 300_000)
		a := send(t, port, object)
		if a.err == nil && a.line != "" {
			if r := a.receipt(t); r.Digest != sha256.Sum256(object) {
				t.Fatalf("receipt %+v", r)
			}
			s.receipted(object)
			continue
		}
		if !errors.Is(a.err, syscall.ECONNRESET) && !errors.Is(a.err, syscall.EPIPE) {
			t.Fatalf("who finds the spool full hears %q, %v", a.line, a.err)
		}
		refused++
	}
	if len(s.objects) < 5 || refused < 5 {
		t.Fatalf("a spool of 3 MB took %d objects of 300 kB and refused %d", len(s.objects), refused)
	}
	if v := g.number("substorm_gateway_spool_used_bytes"); v > 3_000_000 {
		t.Errorf("the spool takes %v bytes", v)
	}
	l.nats.Start()
	l.minio.Start()
	l.awaitDrained(t, g, &s)
	l.awaitLedger(t, "camera", wire.StepReceived, func(totals wire.Totals) bool {
		return totals.Unfinished[wire.CauseNoSpace] == uint64(refused)
	})
	object := random(100, 300_000)
	mustSend(t, port, object)
	s.receipted(object)
	l.awaitDrained(t, g, &s)
}

// A gateway that is stopped while the store is away stops in time, leaves its spool on the volume,
// and the next one drains it. The Site gets a report.
func TestStopWithSpool(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	l.declare(t, spoolingCamera(port, "StoredOrSpooled"))
	dir := t.TempDir()
	g := l.start(t, gatewayOptions{dir: dir, flags: []string{"--drain-timeout", "12s"}})
	g.awaitReady()
	l.minio.Kill()
	var s sent
	for seed := range uint64(5) {
		object := random(seed, 100_000)
		mustSend(t, port, object)
		s.receipted(object)
	}
	await(t, "the Site is told", func() (bool, string) {
		status, err := l.gatewayStatus(t, g.name)
		ok := err == nil && status.Spool != nil && status.Spool.Objects == 5 && status.Spool.Bytes == 500_000 &&
			status.Spool.Oldest != nil && status.Spool.Size > 0
		return ok, fmt.Sprintf("%+v %v", status.Spool, err)
	})
	if err := g.stop(); err != nil {
		t.Error(err)
	}
	g = l.start(t, gatewayOptions{dir: dir})
	await(t, "they are still there", func() (bool, string) {
		v := g.metric("substorm_gateway_spool_objects")
		return v == "5", v
	})
	l.minio.Start()
	l.awaitDrained(t, g, &s)
}

// Records of the spool that rot on the disk, the last one too, are kept apart,
// said so, also after a restart, and in the ledger; the others drain.
func TestSpoolRots(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	l.declare(t, spoolingCamera(port, "Spooled"))
	dir := t.TempDir()
	g := l.start(t, gatewayOptions{dir: dir})
	g.awaitReady()
	l.minio.Kill()
	var s sent
	lost := map[uint64]bool{1: true, 4: true}
	for seed := range uint64(5) {
		object := random(seed, 100_000)
		mustSend(t, port, object)
		if !lost[seed] {
			s.receipted(object)
		}
	}
	g.kill()
	paths, err := filepath.Glob(filepath.Join(dir, "spool", "*.log"))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	log, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	for seed := range lost {
		log[bytes.Index(log, random(seed, 100_000)[50_000:50_100])] ^= 1
	}
	if err := os.WriteFile(paths[0], log, 0o640); err != nil {
		t.Fatal(err)
	}
	l.minio.Start()
	g = l.start(t, gatewayOptions{dir: dir})
	await(t, "the spool is empty", func() (bool, string) {
		v := g.metric("substorm_gateway_spool_objects")
		return v == "0", v
	})
	for _, step := range []wire.Step{wire.StepReceived, wire.StepStored, wire.StepAnnounced} {
		l.awaitLedger(t, "camera", step, func(totals wire.Totals) bool { return totals.Objects == 3 && totals.Digest == s.sum() })
	}
	l.awaitLedger(t, "camera", wire.StepReceived, func(totals wire.Totals) bool {
		return totals.Unfinished[wire.CauseCorrupt] == 2 && totals.Unfinished[wire.CauseKilled] == 0
	})
	kept, err := filepath.Glob(filepath.Join(dir, "spool", "quarantine", "*"))
	if err != nil || len(kept) != 2 {
		t.Errorf("quarantine holds %v, %v", kept, err)
	}
	for _, incarnation := range []string{"the first incarnation", "the next"} {
		if v := g.metric("substorm_gateway_spool_quarantined"); v != "2" {
			t.Errorf("quarantined, says %s: %s", incarnation, v)
		}
		await(t, "the Site is told", func() (bool, string) {
			status, err := l.gatewayStatus(t, g.name)
			return err == nil && status.Spool != nil && status.Spool.Quarantined == 2, fmt.Sprintf("%+v %v", status.Spool, err)
		})
		if err := g.stop(); err != nil {
			t.Error(err)
		}
		g = l.start(t, gatewayOptions{dir: dir})
		g.awaitReady()
	}
}
