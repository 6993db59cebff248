// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
	"github.com/substorm/substorm/ingest-gateway/receive/udp/kernel"
	"github.com/substorm/substorm/ingest-gateway/receive/udp/sourcetest"
)

func TestConformance(t *testing.T) {
	sourcetest.Conform(t, func() udp.PacketSource { return kernel.New(kernel.Config{ReceiveBuffer: 1 << 20}) })
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
			time.Sleep(10 * time.Microsecond)
		}
	}
	for deadline := time.Now().Add(time.Second); !sink.through(int64(b.N)) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	b.ReportMetric(float64(sink.packets.Load())/b.Elapsed().Seconds(), "packets/s")
}

func freePort(b *testing.B) uint16 {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	return netip.MustParseAddrPort(conn.LocalAddr().String()).Port()
}
