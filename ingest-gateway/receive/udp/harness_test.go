// SPDX-License-Identifier: Apache-2.0

package udp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/announce"
	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/ledger"
	"github.com/substorm/substorm/ingest-gateway/receive/udp"
	"github.com/substorm/substorm/ingest-gateway/receive/udp/kernel"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site    = "test"
	gateway = "pool-0"
)

// bench is a receiver with all that it needs, on a real NATS server.
type bench struct {
	t        testing.TB
	server   *testenv.NATSServer
	js       jetstream.JetStream
	registry *intake.Registry
	ledger   *ledger.Ledger
	commits  *stream.Committer
	receiver *udp.Receiver
	metrics  *prometheus.Registry
	revision int64
	drained  atomic.Bool
}

type benchConfig struct {
	source udp.PacketSource // default: the kernel's
	budget int64            // default: 64 MiB
	server testenv.NATSOptions
	stream func(*jetstream.StreamConfig)
	// noSpace is udp.Config's.
	noSpace func() bool
	// gather is udp.Config's.
	gather time.Duration
}

func newBench(t testing.TB, cfg benchConfig) *bench {
	t.Helper()
	b := &bench{t: t, server: testenv.NATS(t, cfg.server), metrics: prometheus.NewRegistry()}
	nc, err := stream.Connect(t.Context(), stream.Config{Servers: []string{b.server.URL()}, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b.js = b.server.JetStream(t)
	b.makeStreams(cfg.stream)
	b.registry = intake.NewRegistry()
	b.ledger, err = ledger.Open(ledger.Config{Dir: t.TempDir(), Site: site, Gateway: gateway, Incarnation: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if b.commits, err = stream.NewCommitter(nc, stream.CommitterConfig{Stream: wire.ObservationStream(site)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = b.commits.Close(ctx)
	})
	if cfg.source == nil {
		cfg.source = kernel.New(kernel.Config{})
	}
	if cfg.budget == 0 {
		cfg.budget = 64 << 20
	}
	b.receiver = udp.NewReceiver(udp.Config{
		Source: cfg.source, Registry: b.registry, Ledger: b.ledger, Budget: cfg.budget, NoSpace: cfg.noSpace, Gather: cfg.gather, Metrics: b.metrics,
		Announcer: announce.New(announce.Config{
			Site: site, Gateway: gateway, Incarnation: "one", Observations: b.commits,
		}),
	})
	b.follow()
	return b
}

func (b *bench) makeStreams(change func(*jetstream.StreamConfig)) {
	b.t.Helper()
	testenv.CreateSite(b.t, b.js, site)
	s, err := b.js.Stream(b.t.Context(), wire.ObservationStream(site))
	if err != nil {
		b.t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	if change != nil {
		change(&cfg)
	}
	if _, err := b.js.UpdateStream(b.t.Context(), cfg); err != nil {
		b.t.Fatal(err)
	}
}

// follow makes the registry follow the Site's, as in a gateway.
func (b *bench) follow() {
	b.t.Helper()
	follower := intake.NewFollower(intake.FollowerConfig{
		Site: site, Scope: intake.Scope{Pool: "pool", FirstPort: 1, LastPort: 65535}, File: filepath.Join(b.t.TempDir(), "registry"),
		Registry: b.registry, Logger: slog.New(slog.DiscardHandler),
		Apply: func(s *intake.Snapshot) map[string]string {
			if !b.drained.Load() {
				for port, err := range b.receiver.Listen(s.Ports(wire.ProtocolUDP)) {
					b.t.Errorf("port %d: %v", port, err)
				}
			}
			return nil
		},
		Changed: func() {},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { follower.Run(ctx, b.js) })
	b.t.Cleanup(func() { cancel(); following.Wait() })
}

// register puts instruments into the registry and waits until they are received.
func (b *bench) register(entries ...wire.InstrumentEntry) {
	b.t.Helper()
	kv, err := b.js.KeyValue(b.t.Context(), wire.RegistryBucket(site))
	if err != nil {
		b.t.Fatal(err)
	}
	b.revision++
	put := func(key string, record any) {
		value, err := wire.Encode(record)
		if err != nil {
			b.t.Fatal(err)
		}
		if _, err := kv.Put(b.t.Context(), key, value); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, e := range entries {
		e.Revision = b.revision
		put(wire.RegistryInstrumentKey(e.Instrument), e)
	}
	put(wire.RegistryCompleteKey, wire.RegistryComplete{Revision: b.revision, Count: len(entries)})
	b.awaitRevision()
	for port, err := range b.receiver.Listen(b.registry.Current().Ports(wire.ProtocolUDP)) { // Apply may still be at it
		b.t.Fatalf("port %d: %v", port, err)
	}
}

// awaitRevision waits until the registry has what was put into it last.
func (b *bench) awaitRevision() {
	b.t.Helper()
	for range testenv.Attempts() {
		if b.registry.Current().Revision >= b.revision {
			return
		}
	}
	b.t.Fatalf("the registry is at revision %d, want %d", b.registry.Current().Revision, b.revision)
}

// instrument is the registry's entry of an instrument that sends to a port.
func instrument(name string, port uint16, sources ...string) wire.InstrumentEntry {
	return wire.InstrumentEntry{
		Instrument: name, UID: name, Generation: 1, Gateway: "pool",
		MaxObjectSize: 1, MaxConnections: 1, SegmentAgeMillis: 1000, SegmentSize: 1 << 20,
		Listeners: []wire.ListenerEntry{{Protocol: wire.ProtocolUDP, Port: port, Channel: "raw", Sources: sources}},
	}
}

func freePort(t testing.TB) uint16 {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return netip.MustParseAddrPort(conn.LocalAddr().String()).Port()
}

// send sends n datagrams that hold their number, from an address of loopback.
func (b *bench) send(from string, port uint16, n int, pause func(i int)) {
	b.t.Helper()
	local := &net.UDPAddr{IP: net.ParseIP(from)}
	conn, err := net.DialUDP("udp", local, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	for i := range n {
		if _, err := fmt.Fprintf(conn, "%s %d", from, i); err != nil {
			b.t.Fatal(err)
		}
		if pause != nil {
			pause(i)
		}
	}
}

// published returns all datagrams in the stream, by instrument, and checks each message.
func (b *bench) published() map[string][]wire.Datagram {
	b.t.Helper()
	s, err := b.js.Stream(b.t.Context(), wire.ObservationStream(site))
	if err != nil {
		b.t.Fatal(err)
	}
	all := map[string][]wire.Datagram{}
	state := s.CachedInfo().State
	for seq := state.FirstSeq; state.Msgs > 0 && seq <= state.LastSeq; seq++ {
		msg, err := s.GetMsg(b.t.Context(), seq)
		if err != nil {
			b.t.Fatal(err)
		}
		_, name, _, err := wire.ParseObservationSubject(msg.Subject)
		if err != nil {
			b.t.Fatal(err)
		}
		n, size := 0, 0
		var day wire.Day
		for d, err := range wire.Datagrams(msg.Data) {
			if err != nil {
				b.t.Fatalf("message %d: %v", seq, err)
			}
			if n > 0 && wire.DayOf(d.ReceivedAt) != day {
				b.t.Errorf("message %d holds datagrams of %s and of %s", seq, day, wire.DayOf(d.ReceivedAt))
			}
			day = wire.DayOf(d.ReceivedAt)
			n++
			size += len(d.Payload)
			all[name] = append(all[name], d)
		}
		h := msg.Header
		if h.Get(wire.HeaderDatagrams) != strconv.Itoa(n) || h.Get(wire.HeaderDatagramBytes) != strconv.Itoa(size) || n == 0 {
			b.t.Errorf("message %d has headers %v and holds %d datagrams of %d bytes", seq, h, n, size)
		}
		if at, err := time.Parse(time.RFC3339Nano, h.Get(wire.HeaderTime)); err != nil || wire.DayOf(at) != day {
			b.t.Errorf("message %d has %s %q and holds datagrams of %s", seq, wire.HeaderTime, h.Get(wire.HeaderTime), day)
		}
		if len(msg.Data) > wire.MaxTelemetrySize {
			b.t.Errorf("message %d has %d bytes", seq, len(msg.Data))
		}
	}
	return all
}

// drain drains the receiver and then the committer.
func (b *bench) drain(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	b.drained.Store(true)
	err := b.receiver.Drain(ctx)
	finish, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	return errors.Join(err, b.commits.Close(finish))
}

// totals of the received column of an instrument, of all days there can be.
func (b *bench) totals(name string) wire.Totals {
	var sum wire.Totals
	for days := -400; days <= 1; days++ {
		sum = sum.Plus(b.ledger.Totals(name, wire.DayOf(time.Now().AddDate(0, 0, days))))
	}
	return sum
}

func (b *bench) metric(name string, labels map[string]string) float64 {
	b.t.Helper()
	families, err := b.metrics.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			same := f.GetName() == name
			for _, l := range m.GetLabel() {
				same = same && labels[l.GetName()] == l.GetValue()
			}
			if same {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
