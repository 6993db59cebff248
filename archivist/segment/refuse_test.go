// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/pcapng"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

func publishRaw(t *testing.T, js jetstream.JetStream, subject string, data []byte, headers map[string]string) {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Data = data
	for name, value := range headers {
		m.Header.Set(name, value)
	}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// says are the headers of a message of so many datagrams.
func says(datagrams int) map[string]string {
	return map[string]string{wire.HeaderTime: wire.FormatTime(noon), wire.HeaderDatagrams: fmt.Sprint(datagrams), wire.HeaderDatagramBytes: "1"}
}

// message returns a telemetry message of small datagrams.
func message(datagrams int) []byte {
	data := wire.AppendTelemetryHeader(nil, instrument, "raw")
	for range datagrams {
		data = wire.AppendDatagram(data, wire.Datagram{ReceivedAt: noon, Source: netip.MustParseAddrPort("192.0.2.7:1"), Payload: []byte("x")})
	}
	return data
}

// Datagrams that a message's header announces and its body does not give are counted,
// and those that the body does give are kept.
func TestUndecodable(t *testing.T) {
	large := wire.AppendDatagram(message(1), wire.Datagram{ReceivedAt: noon, Source: netip.MustParseAddrPort("192.0.2.7:1"), Payload: make([]byte, 65_600)})
	large = append(large, message(2)[len(message(0)):]...)
	for name, c := range map[string]struct {
		data    []byte
		headers map[string]string
		want    wire.SegmentRange
	}{
		"good":                   {message(3), says(3), wire.SegmentRange{Messages: 1, Datagrams: 3}},
		"nonsense":               {[]byte{0xff, 0xff}, says(7), wire.SegmentRange{Undecodable: 7}},
		"nonsense without count": {[]byte{0xff, 0xff}, nil, wire.SegmentRange{Undecodable: 1}},
		"nonsense after two":     {append(message(2), 0xff), says(5), wire.SegmentRange{Datagrams: 2, Undecodable: 3}},
		"nonsense after all":     {append(message(2), 0xff), says(2), wire.SegmentRange{Datagrams: 2}},
		"fewer than said":        {message(2), says(4), wire.SegmentRange{Datagrams: 2, Undecodable: 2}},
		"more than said":         {message(4), says(2), wire.SegmentRange{Messages: 1, Datagrams: 4}},
		"good without count":     {message(2), nil, wire.SegmentRange{Messages: 1, Datagrams: 2}},
		"an odd count":           {[]byte{0xff}, map[string]string{wire.HeaderDatagrams: "-3", wire.HeaderDatagramBytes: "1"}, wire.SegmentRange{Undecodable: 1}},
		"an odd format header": {message(2), map[string]string{wire.HeaderFormat: "one", wire.HeaderDatagrams: "2", wire.HeaderDatagramBytes: "2"},
			wire.SegmentRange{Messages: 1, Datagrams: 2}},
		"no packet is that large": {large, says(4), wire.SegmentRange{Datagrams: 3, Undecodable: 1}},
		"empty":                   {nil, says(2), wire.SegmentRange{Undecodable: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			packets, err := pcapng.NewWriter(new(discard), "")
			if err != nil {
				t.Fatal(err)
			}
			b := &built{}
			m := stream.Message{Data: c.data, Header: nats.Header{}}
			for name, value := range c.headers {
				m.Header.Set(name, value)
			}
			if err := newCutter(t, nil, nil).copyDatagrams(m, b, packets); err != nil {
				t.Fatal(err)
			}
			b.segment.DatagramBytes = 0
			if diff := cmp.Diff(c.want, b.segment); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	full := &discard{err: errors.New("no space left")}
	packets, err := pcapng.NewWriter(full, "")
	if err == nil {
		d := wire.Datagram{ReceivedAt: noon, Source: netip.MustParseAddrPort("192.0.2.7:1"), Payload: make([]byte, 60_000)}
		err = packets.Write(d)
	}
	if !errors.Is(err, full.err) || errors.Is(err, wire.ErrMalformed) {
		t.Errorf("a scratch file that takes no more: %v", err)
	}
}

type discard struct{ err error }

func (d *discard) Write(p []byte) (int, error) { return len(p), d.err }

// start runs a cutter whose segments are small and young.
func start(t *testing.T, c *Cutter) (done <-chan error) {
	t.Helper()
	c.cfg.Limits = func(string) (time.Duration, int64) { return 50 * time.Millisecond, 64 << 20 }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(cancel)
	return ended
}

// stored returns the archivist's stored column of a day.
func stored(t *testing.T, js jetstream.JetStream, of string, day wire.Day) wire.Totals {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), wire.LedgerBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(t.Context(), wire.LedgerKey(of, day, wire.StepStored, wire.ArchivistWriter))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return wire.Totals{}
	}
	if err != nil {
		t.Fatal(err)
	}
	entry, err := wire.Decode[wire.LedgerEntry](e.Value())
	if err != nil {
		t.Fatal(err)
	}
	return entry.Sum()
}

func await(t *testing.T, what string, done <-chan error, holds func() bool) {
	t.Helper()
	testenv.Await(t, what, func() bool {
		if holds() {
			return true
		}
		select {
		case err := <-done:
			t.Fatalf("before %s the cutter ended: %v", what, err)
		default:
		}
		return false
	})
}

// While JetStream refuses to write a cursor or the ledger the cutter waits, and then continues as
// if nothing had happened.
func TestRefusedRequests(t *testing.T) {
	server, minio := testenv.NATS(t, testenv.NATSOptions{}), testenv.SharedMinIO(t, testenv.MinIOOptions{})
	for request, bucket := range map[string]string{requestCursor: wire.CursorBucket(site), requestLedger: wire.LedgerBucket(site)} {
		t.Run(request, func(t *testing.T) {
			js := server.JetStream(t)
			testenv.CreateSite(t, js, site)
			defer func() {
				for _, name := range []string{wire.ObservationStream(site), wire.NoticeStream(site),
					"KV_" + wire.CursorBucket(site), "KV_" + wire.LedgerBucket(site)} {
					if err := js.DeleteStream(context.WithoutCancel(t.Context()), name); err != nil {
						t.Error(err)
					}
				}
			}()
			s, err := js.Stream(t.Context(), "KV_"+bucket)
			if err != nil {
				t.Fatal(err)
			}
			limit := func(bytes int64) {
				full := s.CachedInfo().Config
				full.MaxBytes = bytes
				if _, err := js.UpdateStream(t.Context(), full); err != nil {
					t.Fatal(err)
				}
			}
			limit(1)
			c := newCutter(t, js, minio.Bucket(t, testenv.BucketName()))
			day := wire.DayOf(noon)
			for i := range 3 {
				publish(t, js, fmt.Sprint(request, i), samples()[0], samples()[1])
			}
			publishRaw(t, js, wire.ObservationSubject(site, instrument, "raw"), []byte{0xff}, says(5))
			publish(t, js, fmt.Sprint(request, 3), samples()[0])
			done := start(t, c)
			await(t, "refused", done, func() bool { return testutil.ToFloat64(c.cfg.Metrics.refused.WithLabelValues(request)) >= 2 })
			if got := stored(t, js, instrument, day); got.Datagrams > 0 {
				t.Errorf("while it is refused: %+v", got)
			}
			limit(-1)
			await(t, "stored", done, func() bool { return stored(t, js, instrument, day).Datagrams >= 7 })
			want := wire.Totals{Datagrams: 7, DatagramBytes: 4*14 + 3*3, Dropped: map[wire.Cause]uint64{wire.CauseUndecodable: 5}}
			if diff := cmp.Diff(want, stored(t, js, instrument, day)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A cutter whose entry another wrote is fenced: it ends and does not wait.
func TestFenced(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	testenv.CreateSite(t, js, site)
	c := newCutter(t, js, testenv.SharedBucket(t))
	if err := c.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	ch, err := c.channel(t.Context(), channelKey{instrument, "raw"})
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []bool{true, false} { // without an entry, and with our own
		if !first {
			if err := c.loadCursor(t.Context(), ch); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.cursors.Put(t.Context(), wire.SegmentCursorKey(instrument, "raw"), []byte(`{"format":1,"next":7}`)); err != nil {
			t.Fatal(err)
		}
		if err := c.saveCursor(t.Context(), ch); !errors.Is(err, stream.ErrConflict) {
			t.Errorf("first %v: %v", first, err)
		}
	}
	if n := testutil.ToFloat64(c.cfg.Metrics.refused.WithLabelValues(requestCursor)); n != 0 {
		t.Errorf("%v times refused", n)
	}
}

// Messages whose subject names no channel, or no instrument, are counted once,
// by whatever cutter and however often the stream is scanned.
func TestUnknownChannels(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	store := testenv.SharedBucket(t)
	testenv.CreateSite(t, js, site)
	day := wire.DayOf(noon)
	send := func() {
		publishRaw(t, js, wire.ObservationSubject(site, instrument, "Raw_"), message(3), says(3))
		publishRaw(t, js, wire.ObservationSubject(site, "Mag", "raw"), message(2), says(2))
		publishRaw(t, js, "obs."+site+".mag-1", message(4), says(4))
		publishRaw(t, js, wire.ObservationSubject(site, instrument, "raw"), message(1), says(1))
	}
	lost := func(of string) uint64 { return stored(t, js, of, day).Dropped[wire.CauseUndecodable] }
	for incarnation := uint64(1); incarnation <= 3; incarnation++ {
		send()
		c := newCutter(t, js, store)
		ctx, cancel := context.WithCancel(t.Context())
		c.cfg.Limits = func(string) (time.Duration, int64) { return 50 * time.Millisecond, 64 << 20 }
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		await(t, "counted", done, func() bool {
			return lost(instrument) >= 3*incarnation && lost(wire.UnknownInstrument) >= 6*incarnation && stored(t, js, instrument, day).Datagrams >= incarnation
		})
		cancel()
		<-done
		if n, u := lost(instrument), lost(wire.UnknownInstrument); n != 3*incarnation || u != 6*incarnation {
			t.Errorf("incarnation %d: %d of the instrument, %d of unknown ones", incarnation, n, u)
		}
		if n := testutil.ToFloat64(c.cfg.Metrics.dropped.WithLabelValues(string(wire.CauseUndecodable))); n != 9 {
			t.Errorf("incarnation %d: the metric says %v", incarnation, n)
		}
		// The scan's position is saved rarely, and may be lost.
		if err := c.cursors.Delete(t.Context(), wire.ObservationCursorKey); err != nil {
			t.Fatal(err)
		}
	}
	var keys []string
	for info, err := range store.List(t.Context(), wire.InstrumentPrefix(site, instrument), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	if len(keys) != 3 {
		t.Errorf("segments %v", keys)
	}
}
