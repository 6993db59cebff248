// SPDX-License-Identifier: Apache-2.0

package udp_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/ingest-gateway/receive/udp"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// TestAccounted sends 50,000 datagrams from two instruments and unknown senders over loopback: each is in the stream, in order
// and once, or is counted as dropped.
func TestAccounted(t *testing.T) {
	b := newBench(t, benchConfig{})
	port := freePort(t)
	b.register(instrument("magnetometer", port, "127.0.0.2/32"), instrument("riometer", port, "127.0.0.3/32"))
	const each = 24_000
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.send("127.0.0.3", port, each, nil)
	}()
	b.send("127.0.0.2", port, each, nil)
	<-done
	b.send("127.0.0.4", port, 2000, nil)
	if err := b.drain(30 * time.Second); err != nil {
		t.Fatal(err)
	}

	published := b.published()
	lost := uint64(0)
	for name, from := range map[string]string{"magnetometer": "127.0.0.2", "riometer": "127.0.0.3"} {
		next := 0
		for _, d := range published[name] {
			var sender string
			var i int
			if _, err := fmt.Sscanf(string(d.Payload), "%s %d", &sender, &i); err != nil || sender != from {
				t.Fatalf("%s has datagram %q", name, d.Payload)
			}
			if i < next || d.Source.Addr() != netip.MustParseAddr(from) || d.DestinationPort != port {
				t.Fatalf("%s: datagram %d from %v to %d came where %d was due", name, i, d.Source, d.DestinationPort, next)
			}
			next = i + 1
		}
		totals := b.totals(name)
		if totals.Datagrams != uint64(len(published[name])) || len(totals.Dropped) != 0 {
			t.Errorf("%s: the ledger says %+v, the stream holds %d", name, totals, len(published[name]))
		}
		if n := b.metric("substorm_gateway_datagrams_received_total", map[string]string{"instrument": name}); n != float64(len(published[name])) {
			t.Errorf("%s: %v received by the metric, the stream holds %d", name, n, len(published[name]))
		}
		lost += uint64(each - len(published[name]))
	}
	unknown := b.totals(wire.UnknownInstrument)
	if unknown.Dropped[wire.CauseUnknownSource]+unknown.Dropped[wire.CauseKernelBuffer] != 2000+lost {
		t.Errorf("%d datagrams of instruments are not in the stream, and 2000 came from an unknown sender; counted are %v", lost, unknown.Dropped)
	}
	for _, cause := range []wire.Cause{wire.CauseUnknownSource, wire.CauseKernelBuffer} {
		labels := map[string]string{"instrument": wire.UnknownInstrument, "cause": string(cause)}
		if n := b.metric("substorm_gateway_datagrams_dropped_total", labels); n != float64(unknown.Dropped[cause]) {
			t.Errorf("%s: %v by the metric, %d by the ledger", cause, n, unknown.Dropped[cause])
		}
	}
	t.Logf("%d lost in the kernel's buffer", lost)
}

// paced is the pause of a sender after its datagram i: the kernel's buffer must not be what drops.
func paced(i int) {
	if i%100 == 99 {
		time.Sleep(time.Millisecond)
	}
}

// sendUntilDropped sends as the magnetometer until one more datagram of it is dropped for a cause, and returns how many it sent.
func (b *bench) sendUntilDropped(port uint16, cause wire.Cause) (sent int) {
	b.t.Helper()
	const step = 1000
	dropped := func() uint64 { return b.totals("magnetometer").Dropped[cause] }
	was := dropped()
	for range testenv.Attempts() {
		if dropped() > was {
			return sent
		}
		b.send("127.0.0.2", port, step, paced)
		sent += step
	}
	b.t.Fatalf("of %d datagrams none was dropped for %s: %+v", sent, cause, b.totals("magnetometer"))
	return sent
}

// TestOutage: with JetStream away datagrams wait until their memory is spent; later ones are dropped and counted; those
// that waited are published when JetStream is back.
func TestOutage(t *testing.T) {
	b := newBench(t, benchConfig{budget: 300 << 10})
	port := freePort(t)
	b.register(instrument("magnetometer", port))
	b.server.Kill()
	const sent = 40_000
	b.send("127.0.0.2", port, sent, paced)
	drops := func() uint64 { return b.totals("magnetometer").Dropped[wire.CauseBacklog] }
	testenv.Await(t, "what is beyond the budget is dropped", func() bool { return drops() > 0 })
	b.server.Start()
	if err := b.drain(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	totals, published := b.totals("magnetometer"), len(b.published()["magnetometer"])
	kernel := totals.Dropped[wire.CauseKernelBuffer]
	if uint64(published) != totals.Datagrams || totals.Datagrams+drops()+kernel != sent || published == 0 {
		t.Errorf("%d sent; the stream holds %d, the ledger says %+v", sent, published, totals)
	}
}

// TestStreamFull: what a full stream does not take waits, then is dropped with that cause; when there is space again,
// what waited is published.
func TestStreamFull(t *testing.T) {
	b := newBench(t, benchConfig{
		budget: 300 << 10, server: testenv.NATSOptions{Unsynced: true},
		stream: func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 3 },
	})
	port := freePort(t)
	b.register(instrument("magnetometer", port))
	sent := b.sendUntilDropped(port, wire.CauseStreamFull)
	s, err := b.js.Stream(t.Context(), wire.ObservationStream(site))
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgs = -1
	if _, err := b.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := b.drain(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	totals, published := b.totals("magnetometer"), len(b.published()["magnetometer"])
	accounted := totals.Datagrams
	for _, n := range totals.Dropped {
		accounted += n
	}
	if uint64(published) != totals.Datagrams || accounted != uint64(sent) {
		t.Errorf("%d sent; the stream holds %d, the ledger says %+v", sent, published, totals)
	}
}

// TestNoSpace: while nothing may be kept on the disk datagrams wait, then are dropped with that cause, and none is published; when there is
// space again, what waited is published. Datagrams that wait when the receiver has to stop are counted, too.
func TestNoSpace(t *testing.T) {
	var full atomic.Bool
	full.Store(true)
	b := newBench(t, benchConfig{budget: 300 << 10, noSpace: full.Load})
	port := freePort(t)
	b.register(instrument("magnetometer", port))
	sent := b.sendUntilDropped(port, wire.CauseNoSpace)
	if n := len(b.published()["magnetometer"]); n > 0 {
		t.Errorf("%d datagrams were published without space", n)
	}
	full.Store(false)
	testenv.Await(t, "something that waited is published", func() bool { return b.totals("magnetometer").Datagrams > 0 })
	full.Store(true)
	sent += b.sendUntilDropped(port, wire.CauseNoSpace)
	if err := b.drain(700 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drain: %v", err)
	}
	totals, published := b.totals("magnetometer"), len(b.published()["magnetometer"])
	accounted := totals.Datagrams
	for _, n := range totals.Dropped {
		accounted += n
	}
	if uint64(published) != totals.Datagrams || accounted != uint64(sent) {
		t.Errorf("%d sent; the stream holds %d, the ledger says %+v", sent, published, totals)
	}
}

// TestDrainInVain: what a full stream never takes is counted when the receiver has to go.
func TestDrainInVain(t *testing.T) {
	b := newBench(t, benchConfig{
		server: testenv.NATSOptions{Unsynced: true}, stream: func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 1 },
	})
	port := freePort(t)
	b.register(instrument("magnetometer", port))
	const sent = 500
	b.send("127.0.0.2", port, sent, func(i int) {
		if i%100 == 99 {
			time.Sleep(3 * wire.TelemetryMaxAge / 2) // a message closes meanwhile, so that there are some
		}
	})
	if err := b.drain(700 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drain: %v", err)
	}
	totals, published := b.totals("magnetometer"), len(b.published()["magnetometer"])
	if uint64(published) != totals.Datagrams || totals.Datagrams+totals.Dropped[wire.CauseStreamFull] != sent || published == sent {
		t.Errorf("%d sent; the stream holds %d, the ledger says %+v", sent, published, totals)
	}
}

// deaf is a source that continues for a while after its context ended.
type deaf struct {
	script
	release chan struct{}
}

func (d *deaf) Run(_ context.Context, sink udp.Sink) error {
	for {
		select {
		case batch := <-d.batches:
			sink.Packets(batch)
		case <-d.release:
			return nil
		}
	}
}

// TestDrainWithoutEnd: a source that does not end delays no drain, and what it hands over after is counted.
func TestDrainWithoutEnd(t *testing.T) {
	source := &deaf{script: script{batches: make(chan []udp.Packet)}, release: make(chan struct{})}
	defer close(source.release)
	b := newBench(t, benchConfig{source: source, server: testenv.NATSOptions{Unsynced: true}})
	b.register(instrument("magnetometer", 999))
	hand := func(n int) {
		var batch []udp.Packet
		for range n {
			batch = append(batch, udp.Packet{
				Source: netip.MustParseAddrPort("10.0.0.1:1"), Port: 999, ReceivedAt: time.Now().UnixNano(), Payload: []byte("0123456789"),
			})
		}
		source.batches <- batch
	}
	hand(5)
	b.await("magnetometer", func(t wire.Totals) bool { return t.Datagrams == 5 })
	if err := b.drain(200 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drain: %v", err)
	}
	hand(7)
	b.await("magnetometer", func(t wire.Totals) bool { return t.Dropped[wire.CauseDraining] >= 7 })
	totals, published := b.totals("magnetometer"), len(b.published()["magnetometer"])
	if uint64(published) != totals.Datagrams || totals.Datagrams+totals.Dropped[wire.CauseDraining] != 12 {
		t.Errorf("12 handed over; the stream holds %d, the ledger says %+v", published, totals)
	}
}

// TestRegistryChanges: a retired instrument is refused, and one that moves is received on its new port.
func TestRegistryChanges(t *testing.T) {
	b := newBench(t, benchConfig{server: testenv.NATSOptions{Unsynced: true}})
	first, second := freePort(t), freePort(t)
	moving, retiring := instrument("moving", first, "127.0.0.2/32"), instrument("retiring", first, "127.0.0.3/32")
	b.register(moving, retiring)
	b.send("127.0.0.2", first, 10, nil)
	b.send("127.0.0.3", first, 10, nil)
	b.await("retiring", func(t wire.Totals) bool { return t.Datagrams == 10 })
	moving.Listeners[0].Port = second
	retiring.Retired = true
	b.register(moving, retiring)
	b.send("127.0.0.2", first, 5, nil) // no longer its port
	b.send("127.0.0.2", second, 7, nil)
	b.send("127.0.0.3", first, 3, nil)
	if err := b.drain(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	if got := b.totals("moving"); got.Datagrams != 17 {
		t.Errorf("moving: %+v, want 17 datagrams", got)
	}
	if got := b.totals("retiring"); got.Datagrams != 10 || got.Dropped[wire.CauseRetired] != 3 {
		t.Errorf("retiring: %+v, want 10 datagrams and 3 refused", got)
	}
	if got := b.totals(wire.UnknownInstrument); got.Dropped[wire.CauseUnknownSource] != 5 {
		t.Errorf("nobody's: %+v, want 5", got)
	}
}

func (b *bench) await(name string, is func(wire.Totals) bool) {
	b.t.Helper()
	for range testenv.Attempts() {
		if is(b.totals(name)) {
			return
		}
	}
	b.t.Fatalf("%s: %+v", name, b.totals(name))
}

// script is a source that hands over what a test gives it.
type script struct{ batches chan []udp.Packet }

func (s *script) Listen([]uint16) map[uint16]error { return nil }

func (s *script) Run(ctx context.Context, sink udp.Sink) error {
	for {
		select {
		case batch, ok := <-s.batches:
			if !ok {
				<-ctx.Done()
				return nil
			}
			sink.Packets(batch)
		case <-ctx.Done():
			return nil
		}
	}
}

// TestTimes: no message holds datagrams of two days, a clock that steps back a little moves no receive time back, and a large
// datagram fits.
func TestTimes(t *testing.T) {
	source := &script{batches: make(chan []udp.Packet)}
	b := newBench(t, benchConfig{source: source, server: testenv.NATSOptions{Unsynced: true}})
	b.register(instrument("magnetometer", 999))
	midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(-48 * time.Hour)
	from := netip.MustParseAddrPort("192.0.2.1:4000")
	packet := func(after time.Duration, size int) udp.Packet {
		return udp.Packet{Source: from, Port: 999, ReceivedAt: midnight.Add(after).UnixNano(), Payload: make([]byte, size)}
	}
	source.batches <- []udp.Packet{packet(-3, 10), packet(-2, 10), packet(-1, 10), packet(0, 10), packet(1, 10)}
	source.batches <- []udp.Packet{packet(-5, 10), packet(2, 0)}
	var large []udp.Packet
	for range 20 {
		large = append(large, packet(time.Second, 65_000))
	}
	source.batches <- large
	source.batches <- []udp.Packet{{Source: from, Port: 999, ReceivedAt: midnight.UnixNano(), Payload: make([]byte, 100), Truncated: true}}
	close(source.batches)
	if err := b.drain(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	var times []time.Duration
	for _, d := range b.published()["magnetometer"] { // which also looks at days and sizes
		times = append(times, d.ReceivedAt.Sub(midnight))
	}
	want := []time.Duration{-3, -2, -1, 0, 1, 1, 2}
	for range 20 {
		want = append(want, time.Second)
	}
	if fmt.Sprint(times) != fmt.Sprint(want) {
		t.Errorf("receive times after midnight %v, want %v", times, want)
	}
	before := b.ledger.Totals("magnetometer", wire.DayOf(midnight.Add(-1)))
	after := b.ledger.Totals("magnetometer", wire.DayOf(midnight))
	if before.Datagrams != 3 || after.Datagrams != 24 || after.Dropped[wire.CauseTruncated] != 1 {
		t.Errorf("before midnight %+v, after %+v", before, after)
	}
}

// TestManyInstruments: a quiet instrument takes little memory, and its message does not wait for others.
func TestManyInstruments(t *testing.T) {
	source := &script{batches: make(chan []udp.Packet)}
	b := newBench(t, benchConfig{source: source, budget: 4 << 20, server: testenv.NATSOptions{Unsynced: true}})
	const many = 1000
	var entries []wire.InstrumentEntry
	for i := range many {
		entries = append(entries, instrument(fmt.Sprintf("i-%d", i), 999, fmt.Sprintf("10.0.%d.%d/32", i/256, i%256)))
	}
	b.register(entries...)
	now := time.Now().UnixNano()
	for round := range 3 {
		var batch []udp.Packet
		for i := range many {
			addr := netip.AddrFrom4([4]byte{10, 0, byte(i / 256), byte(i % 256)})
			batch = append(batch, udp.Packet{
				Source: netip.AddrPortFrom(addr, 1), Port: 999, ReceivedAt: now + int64(round), Payload: []byte("0123456789"),
			})
		}
		source.batches <- batch
	}
	b.await("i-999", func(t wire.Totals) bool { return t.Datagrams == 3 })
	close(source.batches)
	if err := b.drain(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	published := b.published()
	for i := range many {
		if n := len(published[fmt.Sprintf("i-%d", i)]); n != 3 {
			t.Fatalf("i-%d has %d datagrams, want 3", i, n)
		}
	}
}

// A clock that is set forward, over midnight, and right again: datagrams bear its times,
// and are counted in the days of these.
func TestClockIsSetRight(t *testing.T) {
	b := newBench(t, benchConfig{})
	port := freePort(t)
	b.register(instrument("magnetometer", port, "127.0.0.2/32"))
	now := time.Now().UTC().Truncate(time.Second)
	var want []time.Time
	for _, step := range []time.Duration{0, time.Second, 25 * time.Hour, 25*time.Hour + time.Second, 2 * time.Second, 3 * time.Second, 2500 * time.Millisecond} {
		at := now.Add(step)
		b.receiver.Packets([]udp.Packet{{Payload: []byte("x"), Source: netip.MustParseAddrPort("127.0.0.2:4000"), Port: port, ReceivedAt: at.UnixNano()}})
		if step == 2500*time.Millisecond {
			at = now.Add(3 * time.Second) // a little out of order
		}
		want = append(want, at)
	}
	if err := b.drain(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	var got []time.Time
	for _, d := range b.published()["magnetometer"] {
		got = append(got, d.ReceivedAt.UTC())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("received at %v, want %v", got, want)
	}
}
