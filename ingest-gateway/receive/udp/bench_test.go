// SPDX-License-Identifier: Apache-2.0

package udp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/ingest-gateway/announce"
	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/ledger"
	"github.com/substorm/substorm/ingest-gateway/receive/udp"
	"github.com/substorm/substorm/ingest-gateway/receive/udp/kernel"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// The test's own program, run again with this in its environment, sends datagrams to that port until it is killed.
const envFlood = "UDP_TEST_FLOOD"

func TestMain(m *testing.M) {
	if port := os.Getenv(envFlood); port != "" {
		flood(port)
	}
	os.Exit(m.Run())
}

func flood(port string) {
	conn, err := net.Dial("udp", "127.0.0.1:"+port)
	if err != nil {
		panic(err)
	}
	for payload := make([]byte, 236); ; {
		_, _ = conn.Write(payload)
	}
}

// BenchmarkCPU compares the processor time that this process spends on a datagram of 236 bytes (system calls included;
// the sender is another process): a loop of ReadFromUDPAddrPort that only counts, the kernel source with a sink that only
// counts, and the whole way into telemetry messages, which are then thrown away.
func BenchmarkCPU(b *testing.B) {
	b.Run("ReadFromUDPAddrPort", func(b *testing.B) {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{})
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetReadBuffer(16 << 20)
		var n atomic.Int64
		go func() {
			buffer := make([]byte, 64<<10)
			for {
				if _, _, err := conn.ReadFromUDPAddrPort(buffer); err != nil {
					return
				}
				n.Add(1)
			}
		}()
		measure(b, netip.MustParseAddrPort(conn.LocalAddr().String()).Port(), n.Load)
	})
	for name, buffer := range map[string]int{"source": 0, "source with the buffer of an ordinary user": 212_992} {
		b.Run(name, func(b *testing.B) {
			source, port, sink := kernel.New(kernel.Config{ReceiveBuffer: buffer}), freePort(b), &count{}
			for _, err := range source.Listen([]uint16{port}) {
				b.Fatal(err)
			}
			go func() { _ = source.Run(b.Context(), sink) }()
			measure(b, port, sink.n.Load)
		})
	}
	b.Run("receiver", func(b *testing.B) {
		port := freePort(b)
		messages := &discard{}
		r := newDiscarding(b, messages, kernel.New(kernel.Config{}), instrument("magnetometer", port))
		for _, err := range r.Listen([]uint16{port}) {
			b.Fatal(err)
		}
		measure(b, port, messages.datagrams.Load)
		_ = r.Drain(context.Background())
	})
}

// measure floods a port until b.N datagrams were received, and reports the processor time of each.
func measure(b *testing.B, port uint16, received func() int64) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envFlood+"="+strconv.Itoa(int(port)))
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	testenv.Await(b, "datagrams are received", func() bool { return received() > 0 })
	b.ResetTimer()
	first, before := received(), cpu()
	for received()-first < int64(b.N) {
		time.Sleep(time.Millisecond) // a longer pause would count as time of the datagrams
	}
	n, spent := received()-first, cpu()-before
	b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "cpu-ns/datagram")
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "datagrams/s")
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type count struct{ n atomic.Int64 }

func (c *count) Packets(batch []udp.Packet) { c.n.Add(int64(len(batch))) }
func (c *count) Lost(uint16, uint64)        {}

// discard is an announcer that throws away.
type discard struct{ datagrams, messages atomic.Int64 }

func (d *discard) Telemetry(_ context.Context, m announce.Telemetry, settled func(error)) error {
	d.datagrams.Add(int64(m.Datagrams))
	d.messages.Add(1)
	settled(nil)
	return nil
}

func newDiscarding(b testing.TB, announcer udp.Announcer, source udp.PacketSource, entries ...wire.InstrumentEntry) *udp.Receiver {
	b.Helper()
	l, err := ledger.Open(ledger.Config{Dir: b.TempDir(), Site: site, Gateway: gateway, Incarnation: "one"})
	if err != nil {
		b.Fatal(err)
	}
	return udp.NewReceiver(udp.Config{
		Source: source, Registry: lastSeen(b, entries), Announcer: announcer, Ledger: l, Budget: 64 << 20,
	})
}

// lastSeen returns a registry as a gateway that starts without NATS finds it on its volume.
func lastSeen(b testing.TB, entries []wire.InstrumentEntry) *intake.Registry {
	b.Helper()
	var encoded []json.RawMessage
	for _, e := range entries {
		e.Revision = 1
		data, err := wire.Encode(e)
		if err != nil {
			b.Fatal(err)
		}
		encoded = append(encoded, data)
	}
	saved, err := json.Marshal(map[string]any{
		"format": wire.Format, "site": site, "epoch": time.Now(), "revision": 1, "entries": encoded,
	})
	if err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.TempDir(), "registry.json")
	if err := os.WriteFile(file, saved, 0o600); err != nil {
		b.Fatal(err)
	}
	r := intake.NewRegistry()
	intake.NewFollower(intake.FollowerConfig{
		Site: site, Scope: intake.Scope{Pool: "pool", FirstPort: 1, LastPort: 65535}, File: file, Registry: r,
		Logger:  slog.New(slog.DiscardHandler),
		Apply:   func(*intake.Snapshot) map[string]string { return nil },
		Changed: func() {},
	})
	if n := len(r.Current().Instruments()); n != len(entries) {
		b.Fatalf("the registry knows %d instruments, want %d: %v", n, len(entries), r.Current().Problems)
	}
	return r
}

// BenchmarkPackets is the way from a batch of packets into messages alone, by how many senders are mixed on a port.
func BenchmarkPackets(b *testing.B) {
	for _, senders := range []int{1, 16, 1000} {
		b.Run(fmt.Sprintf("%d senders", senders), func(b *testing.B) {
			var entries []wire.InstrumentEntry
			for i := range senders {
				entries = append(entries, instrument(fmt.Sprintf("i-%d", i), 999, fmt.Sprintf("10.0.%d.%d/32", i/256, i%256)))
			}
			r := newDiscarding(b, &discard{}, &script{batches: make(chan []udp.Packet)}, entries...)
			batches := make([][]udp.Packet, 100)
			payload, sender := make([]byte, 236), 0
			for i := range batches {
				for range 64 {
					addr := netip.AddrFrom4([4]byte{10, 0, byte(sender / 256), byte(sender % 256)})
					batches[i] = append(batches[i], udp.Packet{Source: netip.AddrPortFrom(addr, 9), Port: 999, Payload: payload})
					sender = (sender + 1) % senders
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += 64 {
				batch := batches[n/64%len(batches)]
				now := time.Now().UnixNano()
				for i := range batch {
					batch[i].ReceivedAt = now
				}
				r.Packets(batch)
			}
			b.StopTimer()
			_ = r.Drain(context.Background())
		})
	}
}
