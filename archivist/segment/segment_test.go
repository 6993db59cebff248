// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	site       = "thule"
	instrument = "mag-1"
)

// noon of the day before yesterday: the day is over, and its ledger is still remembered (keepStored).
var noon = time.Now().UTC().Truncate(24 * time.Hour).Add(-36*time.Hour + 123_456_789)

func samples() []wire.Datagram {
	return []wire.Datagram{
		{ReceivedAt: noon, Source: netip.MustParseAddrPort("192.0.2.7:40001"), DestinationPort: 30102, Payload: []byte("48123.4 -12.9\n")},
		{ReceivedAt: noon.Add(1), Source: netip.MustParseAddrPort("[2001:db8::7]:65535"), DestinationPort: 1, Payload: []byte("odd")},
		{ReceivedAt: noon.Add(2), Source: netip.MustParseAddrPort("[::ffff:192.0.2.8]:7"), DestinationPort: 30102, Payload: []byte{}},
		{ReceivedAt: noon.Add(time.Second), Source: netip.MustParseAddrPort("192.0.2.9:1"), DestinationPort: 65535, Payload: bytes.Repeat([]byte{0xff, 0}, 65507/2)},
		{ReceivedAt: noon.Add(-time.Second), DestinationPort: 30102, Payload: []byte("of an unknown source")},
	}
}

type always struct{}

func (always) Check() error { return nil }

func newCutter(t *testing.T, js jetstream.JetStream, store objectstore.Store) *Cutter {
	t.Helper()
	return New(Config{
		Base:       holder.Base{Site: site, Pod: "a", JetStream: js, Store: store, Lease: always{}, Log: slog.New(slog.DiscardHandler)},
		ScratchDir: t.TempDir(), Limits: func(string) (time.Duration, int64) { return time.Hour, 64 << 20 }, LateAfter: func(string) time.Duration { return wire.DefaultLateAfter }, Metrics: NewMetrics(prometheus.NewRegistry()),
	})
}

func publish(t *testing.T, js jetstream.JetStream, id string, datagrams ...wire.Datagram) {
	t.Helper()
	data := wire.AppendTelemetryHeader(nil, instrument, "raw")
	size := 0
	for _, d := range datagrams {
		data = wire.AppendDatagram(data, d)
		size += len(d.Payload)
	}
	m := nats.NewMsg(wire.ObservationSubject(site, instrument, "raw"))
	m.Data = data
	m.Header.Set(wire.HeaderID, id)
	m.Header.Set(wire.HeaderTime, wire.FormatTime(datagrams[0].ReceivedAt))
	m.Header.Set(wire.HeaderDatagrams, fmt.Sprint(len(datagrams)))
	m.Header.Set(wire.HeaderDatagramBytes, fmt.Sprint(size))
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// Two cutters with two scratch files give the same object for a range.
func TestSameRangeSameObject(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	testenv.CreateSite(t, js, site)
	for i, d := range samples() {
		if len(d.Payload) < 1000 {
			publish(t, js, fmt.Sprint(i), d, d)
		}
	}
	publish(t, js, "0", samples()[0]) // a duplicate by its id
	epoch, _, err := stream.Epoch(t.Context(), js, wire.ObservationStream(site))
	if err != nil {
		t.Fatal(err)
	}
	planned := wire.SegmentRange{Channel: "raw", Epoch: epoch, First: 1, Last: 5}
	var notices []wire.Notice
	for range 2 {
		c := newCutter(t, js, nil)
		b, err := c.build(t.Context(), newChannel(channelKey{instrument, "raw"}, nil), planned, wire.DayOf(noon))
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(b.file.Name())
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(data)) != b.size || wire.Digest(sha256.Sum256(data)) != b.digest || b.duplicates != 1 {
			t.Errorf("size %d, digest %s, %d duplicates", b.size, b.digest, b.duplicates)
		}
		notices = append(notices, b.notice(site, instrument, "key", wire.DayOf(noon), wire.DefaultLateAfter))
		b.remove()
		if left, err := filepath.Glob(filepath.Join(c.cfg.ScratchDir, "*")); err != nil || len(left) > 0 {
			t.Errorf("scratch holds %v, %v", left, err)
		}
	}
	if diff := cmp.Diff(notices[0], notices[1]); diff != "" {
		t.Errorf("cut twice (-first +second):\n%s", diff)
	}
	n := notices[0]
	if s := n.Segment; s.Messages != 4 || s.Datagrams != 8 || s.DatagramBytes != 2*(14+3+0+20) {
		t.Errorf("counts %+v", s)
	}
	if n.Backfill || !n.ObservedFrom.Equal(noon.Add(-time.Second)) || !n.ObservedTo.Equal(noon.Add(2)) || !n.ReceivedAt.Equal(noon.Add(2)) {
		t.Errorf("times %v to %v, received %v", n.ObservedFrom, n.ObservedTo, n.ReceivedAt)
	}
}

// A segment of 64 MiB is made without holding it in memory.
func TestLargeSegmentInLittleMemory(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{Unsynced: true}).JetStream(t)
	store := testenv.SharedBucket(t)
	testenv.CreateSite(t, js, site)
	payload := bytes.Repeat([]byte("0123456789abcdef"), 64)
	datagrams := make([]wire.Datagram, 240)
	for i := range datagrams {
		datagrams[i] = wire.Datagram{ReceivedAt: noon, Source: netip.MustParseAddrPort("192.0.2.7:1"), DestinationPort: 1, Payload: payload}
	}
	const messages = 240
	for i := range messages {
		publish(t, js, fmt.Sprint(i), datagrams...)
	}
	c := newCutter(t, js, store)
	c.cfg.Limits = func(string) (time.Duration, int64) { return time.Millisecond, 64 << 20 }
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // as the archivist runs: the heap that is measured has garbage too
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for key := ""; key == ""; time.Sleep(5 * time.Millisecond) { // the heap is measured so often
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak.Store(max(peak.Load(), m.HeapInuse-min(before.HeapInuse, m.HeapInuse)))
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
		for info, err := range store.List(ctx, wire.InstrumentPrefix(site, instrument), "") {
			if err != nil {
				t.Fatal(err)
			}
			if key = info.Key; info.Size < 59<<20 {
				t.Errorf("%s has %d bytes", key, info.Size)
			}
		}
	}
	cancel()
	<-done
	t.Logf("at most %d MiB of heap", peak.Load()>>20)
	if peak.Load() > 40<<20 {
		t.Errorf("the heap grew by %d MiB for a segment of 60 MiB", peak.Load()>>20)
	}
}
