// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
	"github.com/substorm/substorm/ingest-gateway/receive/udp/kernel"
	"github.com/substorm/substorm/internal/testenv"
)

// A port closes under a sender that always has a datagram waiting.
func TestClosesWhileFlooded(t *testing.T) {
	byListen := func(s *kernel.Source, _ context.CancelFunc) { s.Listen(nil) }
	byRun := func(_ *kernel.Source, stop context.CancelFunc) { stop() }
	for name, tc := range map[string]struct {
		end   func(*kernel.Source, context.CancelFunc)
		pause time.Duration // of each sender
	}{
		"steady, Listen": {byListen, 100 * time.Microsecond},
		"steady, Run":    {byRun, 100 * time.Microsecond},
		"flood, Listen":  {byListen, 0},
		"flood, Run":     {byRun, 0},
	} {
		t.Run(name, func(t *testing.T) {
			source, sink, port := kernel.New(kernel.Config{}), &counter{}, freePort(t)
			if failed := source.Listen([]uint16{port}); len(failed) > 0 {
				t.Fatal(failed)
			}
			ctx, stop := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- source.Run(ctx, sink) }()
			var sent atomic.Int64
			for range 8 {
				keepSending(t, port, tc.pause, &sent)
			}
			testenv.Await(t, "datagrams are received", func() bool { return sink.through(1000) })
			go func() {
				tc.end(source, stop)
				stop()
			}()
			select {
			case err := <-ran:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(watchdog):
				t.Fatal("the port is still open")
			}
			last, until := sink.packets.Load(), sent.Load()+2000
			testenv.Await(t, "the senders go on", func() bool { return sent.Load() >= until })
			if now := sink.packets.Load(); now != last {
				t.Errorf("%d datagrams after the port was closed", now-last)
			}
		})
	}
}

// watchdog ends a test that hangs.
const watchdog = 30 * time.Second

// keepSending sends to a port until the test ends, and counts in sent what went out.
func keepSending(t *testing.T, port uint16, pause time.Duration, sent *atomic.Int64) {
	conn, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		payload := make([]byte, 236)
		for {
			// A closed port answers with ECONNREFUSED, and is sent to all the same.
			switch _, err := conn.Write(payload); {
			case errors.Is(err, net.ErrClosed):
				return
			case err == nil:
				sent.Add(1)
			}
			if pause > 0 {
				time.Sleep(pause)
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
}

// counter is a sink that only counts.
type counter struct{ packets, lost atomic.Int64 }

func (c *counter) Packets(batch []udp.Packet) { c.packets.Add(int64(len(batch))) }
func (c *counter) Lost(_ uint16, n uint64)    { c.lost.Add(int64(n)) }
func (c *counter) through(n int64) bool       { return c.packets.Load()+c.lost.Load() >= n }

// BenchmarkSource receives datagrams of 236 bytes beside a plain loop of
// ReadFromUDPAddrPort, which only counts, too.
func BenchmarkSource(b *testing.B) {
	b.Run("recvmmsg", func(b *testing.B) {
		source, sink, port := kernel.New(kernel.Config{}), &counter{}, freePort(b)
		if failed := source.Listen([]uint16{port}); len(failed) > 0 {
			b.Fatal(failed)
		}
		go func() { _ = source.Run(b.Context(), sink) }()
		flood(b, port, sink)
	})
	b.Run("ReadFrom", func(b *testing.B) {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{})
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetReadBuffer(16 << 20)
		sink := &counter{}
		go func() {
			buf := make([]byte, 64<<10)
			for {
				if _, _, err := conn.ReadFromUDPAddrPort(buf); err != nil {
					return
				}
				sink.packets.Add(1)
			}
		}()
		flood(b, netip.MustParseAddrPort(conn.LocalAddr().String()).Port(), sink)
	})
}

func flood(b *testing.B, port uint16, sink *counter) {
	conn, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	payload := make([]byte, 236)
	b.ResetTimer()
	for i := range b.N {
		if _, err := conn.Write(payload); err != nil {
			b.Fatal(err)
		}
		for int64(i)-sink.packets.Load()-sink.lost.Load() > 4096 {
			time.Sleep(10 * time.Microsecond) // the sender must not overrun what it measures
		}
	}
	for range testenv.AttemptsFor(time.Second) { // the last may be lost without a report
		if sink.through(int64(b.N)) {
			break
		}
	}
	b.ReportMetric(float64(sink.packets.Load())/b.Elapsed().Seconds(), "packets/s")
}

func freePort(b testing.TB) uint16 {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	return netip.MustParseAddrPort(conn.LocalAddr().String()).Port()
}
