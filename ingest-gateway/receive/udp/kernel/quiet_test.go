// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
)

// tally counts datagrams by port.
type tally struct{ packets, lost atomic.Int64 }

func (c *tally) Packets(batch []udp.Packet) { c.packets.Add(int64(len(batch))) }
func (c *tally) Lost(_ uint16, n uint64)    { c.lost.Add(int64(n)) }

func (c *tally) await(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); c.packets.Load() < int64(n); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d datagrams are read, want %d", c.packets.Load(), n)
		}
	}
}

// use is what a source with quiet ports takes.
type use struct {
	heap    int64
	threads int
	// collections of garbage while datagrams came, under a limit of 64 MiB.
	collections uint32
}

// measure receives some datagrams at each of n ports.
func measure(t *testing.T, n int) use {
	t.Helper()
	source, sink := New(Config{ReceiveBuffer: 64 << 10}), &tally{}
	var opened []*socket
	for range n { // port 0 lets the kernel choose
		s, err := openSocket(netip.Addr{}, 0, source.cfg.ReceiveBuffer)
		if err != nil {
			t.Fatal(err)
		}
		s.port = uint16(portOf(t, s.fd))
		source.sockets[s.port] = s
		opened = append(opened, s)
	}
	before := heap()
	ran := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { ran <- source.Run(ctx, sink) }()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
	var first, last runtime.MemStats
	const rounds = 3
	for round := range rounds {
		for _, s := range opened {
			if _, err := conn.WriteToUDP([]byte("datagram"), &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(s.port)}); err != nil {
				t.Fatal(err)
			}
		}
		sink.await(t, (round+1)*n)
		if round == 0 {
			runtime.ReadMemStats(&first)
		}
	}
	runtime.ReadMemStats(&last)
	u := use{heap: heap() - before, threads: threads(t), collections: last.NumGC - first.NumGC}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if lost := sink.lost.Load(); lost != 0 {
		t.Errorf("%d datagrams of %d ports are lost", lost, n)
	}
	return u
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

// Ports to which little comes share one reader and its memory: more of them take no more threads, hardly more memory, and
// no collections of garbage.
func TestQuietPortsShareAReader(t *testing.T) {
	few, many := measure(t, 50), measure(t, 500)
	t.Logf("50 ports: %+v, 500 ports: %+v", few, many)
	if each := (many.heap - few.heap) / 450; each > 4<<10 {
		t.Errorf("a port more takes %d bytes of heap", each)
	}
	if more := many.threads - few.threads; more > 5 {
		t.Errorf("450 ports more take %d threads more", more)
	}
	if many.collections > few.collections+5 {
		t.Errorf("500 ports have the collector run %d times, 50 ports %d times", many.collections, few.collections)
	}
}

// A port that fills batches gets a reader of its own, and loses it when it is calm; if there are as many as may be, it is
// received all the same, and others beside it.
func TestBusyPortHasAReader(t *testing.T) {
	for name, busy := range map[string]int{"its own": 1, "no more": 0} {
		t.Run(name, func(t *testing.T) {
			s, conn := open(t)
			sink := &tally{}
			q, err := newQuiet(sink, newReaders(busy))
			if err != nil {
				t.Fatal(err)
			}
			const n = 3 * batchSize
			send(t, conn, n) // they are there before it is read
			other, quietly := open(t)
			send(t, quietly, 1)
			for _, of := range []*socket{s, other} {
				if err := of.start(q); err != nil {
					t.Fatal(err)
				}
			}
			go q.run()
			t.Cleanup(func() {
				closeSocket(t, s)
				closeSocket(t, other)
				q.close()
			})
			sink.await(t, n+1)
			s.mu.Lock()
			has := s.busy != nil
			s.mu.Unlock()
			if has != (busy == 1) {
				t.Errorf("it has a reader of its own: %v", has)
			}
			if has {
				if len(q.readers.tokens) != 1 {
					t.Errorf("%d readers are taken", len(q.readers.tokens))
				}
				closeSocket(t, s)
				if len(q.readers.tokens) != 0 {
					t.Error("a closed port keeps its reader")
				}
			}
		})
	}
}

// A source reads into no more memory than it may.
func TestReadersFitMemory(t *testing.T) {
	for memory, want := range map[int64]int{1: 0, 2 * batchMemory: 0, 3 * batchMemory: min(1, 2*runtime.NumCPU()),
		math.MaxInt64: 2 * runtime.NumCPU(), 0: 2 * runtime.NumCPU()} {
		if got := cap(New(Config{Memory: memory}).readers.tokens); got != want {
			t.Errorf("with %d bytes %d ports have a reader, want %d", memory, got, want)
		}
	}
}
