// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// swarm is many senders of small objects: each has one connection, on which so
// many objects wait for their receipts; what has none when a connection ends is
// sent again over the next.
type swarm struct {
	port, senders, objects, inFlight, size int
	list                                   sent
}

// run returns once every object has its receipt.
func (s *swarm) run(t *testing.T) {
	t.Helper()
	var senders sync.WaitGroup
	for i := range s.senders {
		senders.Go(func() {
			var all [][]byte
			for k := range s.objects {
				all = append(all, random(uint64(i*s.objects+k+1), s.size))
			}
			end := time.Now().Add(3 * time.Minute)
			for len(all) > 0 && time.Now().Before(end) {
				n := s.connect(t, all)
				for _, object := range all[:n] {
					s.list.receipted(object)
				}
				if all = all[n:]; len(all) > 0 {
					time.Sleep(100 * time.Millisecond) // senders pause before they connect again
				}
			}
			if len(all) > 0 {
				t.Errorf("sender %d: %d objects have no receipt", i, len(all))
			}
		})
	}
	senders.Wait()
}

// connect sends objects over one connection and returns how many got receipts.
func (s *swarm) connect(t *testing.T, objects [][]byte) (receipts int) {
	conn, err := net.Dial("tcp", loopback(s.port))
	if err != nil {
		return 0
	}
	defer conn.Close()
	slots := make(chan struct{}, s.inFlight)
	gone := make(chan struct{})
	go func() {
		for _, o := range objects {
			select {
			case slots <- struct{}{}:
			case <-gone:
				return
			}
			if _, err := conn.Write(prefixed(o)); err != nil {
				return
			}
		}
	}()
	defer close(gone)
	lines := bufio.NewReader(conn)
	for _, o := range objects {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		line, err := lines.ReadString('\n')
		if err != nil {
			return receipts
		}
		if got, err := wire.ParseReceipt(line); err != nil || got != receiptOf(o) {
			t.Errorf("receipt %q, %v", line, err)
			return receipts
		}
		receipts++
		<-slots
	}
	return receipts
}

func swarming(port int, acknowledge string) wire.InstrumentEntry {
	e := framed("camera", port, wire.FramingLengthPrefixed)
	e.Acknowledge = acknowledge
	return e
}

// 64 senders with 32 objects of 1.5 KB in flight each, all of which wait for the store, fit into a
// budget half as large as their first slabs alone.
//
// It runs by itself: the objects must be there before the gateway's patience with
// the store ends.
func TestManySmallObjectsInLittleMemory(t *testing.T) {
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	revision := l.declare(t, swarming(port, "Stored"))
	const budget = 64 << 20
	g := l.start(t, gatewayOptions{flags: []string{"--memory-budget", fmt.Sprint(budget)}})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	l.minio.Pause()
	s := &swarm{port: port, senders: 64, objects: 64, inFlight: 32, size: 1500}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(t)
	}()
	t.Cleanup(func() {
		l.minio.Continue()
		<-done
	})
	const waiting = 64 * 32
	g.awaitUnsafe(fmt.Sprint(waiting))
	used, most := g.number("substorm_gateway_memory_used_bytes"), g.number("substorm_gateway_memory_budget_bytes")
	if used > most || most > budget || used < waiting*1500 {
		t.Errorf("%d objects of 1500 bytes take %.0f bytes of %.0f", waiting, used, most)
	}
	t.Logf("%d objects of 1500 bytes take %.1f MiB of %.0f MiB", waiting, used/(1<<20), most/(1<<20))
	l.minio.Continue()
	<-done
	l.awaitDrained(t, g, &s.list)
	if packs := g.number("substorm_gateway_packs_total"); packs == 0 || packs > 64*64/8 {
		t.Errorf("%d objects are in %.0f packs", 64*64, packs)
	}
	if err := g.stop(); err != nil {
		t.Error(err)
	}
}

// Store and JetStream come and go while small objects come: every object has one
// receipt and is archived once, and the ledger agrees with the senders' lists.
func TestPacksThroughOutages(t *testing.T) {
	t.Parallel()
	l := newLabAlone(t)
	port := testenv.FreePort(t)
	revision := l.declare(t, swarming(port, "StoredOrSpooled"))
	g := l.start(t, gatewayOptions{})
	g.awaitReady()
	l.awaitRevision(t, g.name, revision)
	var s sent
	phase := uint64(0)
	crowd := func() {
		t.Helper()
		phase++
		var senders sync.WaitGroup
		for i := range uint64(16) {
			senders.Go(func() {
				var objects [][]byte
				for k := range uint64(40) {
					objects = append(objects, random(phase<<32|i<<16|k, 1500))
				}
				one := swarm{port: port, inFlight: 32}
				if n := one.connect(t, objects); n != len(objects) {
					t.Errorf("%d of %d receipts", n, len(objects))
				}
				for _, o := range objects {
					s.receipted(o)
				}
			})
		}
		senders.Wait()
	}
	crowd()
	for name, outage := range l.outages() {
		t.Log(name)
		outage.begin()
		crowd()
		outage.over()
		crowd()
	}
	l.awaitDrained(t, g, &s)
	if err := g.stop(); err != nil {
		t.Error(err)
	}
}

// The gateway is killed again and again while small objects come: whatever has a
// receipt is archived, and listed once, though some were sent twice.
func TestPacksKilled(t *testing.T) {
	t.Parallel()
	for _, acknowledge := range []string{"Stored", "StoredOrSpooled"} {
		t.Run(acknowledge, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			port := testenv.FreePort(t)
			revision := l.declare(t, swarming(port, acknowledge))
			o := gatewayOptions{dir: t.TempDir()}
			g := l.start(t, o)
			g.awaitReady()
			l.awaitRevision(t, g.name, revision)
			s := &swarm{port: port, senders: 16, objects: 1500, inFlight: 32, size: 1500}
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.run(t)
			}()
			kills := 0
			for running := true; running; {
				select {
				case <-done:
					running = false
				case <-time.After(time.Duration(500+200*kills) * time.Millisecond):
					g.kill()
					g = l.start(t, o)
					kills++
				}
			}
			t.Logf("%d kills", kills)
			if kills == 0 {
				t.Error("it was never killed")
			}
			g.awaitReady()
			awaitAll(t, "everything that has a receipt is listed, once", func() (bool, int, string) {
				listed := l.listing(t, "camera")
				missing, twice := 0, 0
				for d := range s.list.objects {
					switch listed[d] {
					case 0:
						missing++
					case 1:
					default:
						twice++
					}
				}
				return missing+twice == 0 && len(listed) == len(s.list.objects), len(listed),
					fmt.Sprintf("%d of %d are missing, %d listed twice, %d listed", missing, len(s.list.objects), twice, len(listed))
			})
			number := 0
			for r, err := range manifest.Day(t.Context(), l.store, l.site, "camera", wire.DayOf(time.Now())) {
				if err != nil {
					t.Fatal(err)
				}
				if number++; number%50 != 0 { // a sample: each is a request
					continue
				}
				if digest, _ := l.digestOf(t, r); digest != r.Digest {
					t.Errorf("%s holds %s", r.ID, digest)
				}
			}
			if err := g.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
