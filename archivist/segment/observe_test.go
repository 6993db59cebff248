// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// The format that an instrument declares for its datagrams says when a segment was observed, and datagrams that do not
// match it are in the segment all the same.
func TestObservedByPayload(t *testing.T) {
	js := testenv.NATS(t, testenv.NATSOptions{}).JetStream(t)
	testenv.CreateSite(t, js, site)
	store := testenv.SharedBucket(t)
	for i, payload := range []string{"2026-01-01T00:00:02.5Z,1\n2026-01-01T00:00:01Z,2\n", "no sample", "2026-01-01T00:00:09Z,3", "2007-01-01T00:00:00Z,4"} {
		publish(t, js, payload, wire.Datagram{ReceivedAt: noon.Add(time.Duration(i)), Source: netip.MustParseAddrPort("192.0.2.7:1"), Payload: []byte(payload)})
	}
	epoch, _, err := stream.Epoch(t.Context(), js, wire.ObservationStream(site))
	if err != nil {
		t.Fatal(err)
	}
	c := newCutter(t, js, store)
	c.epoch = epoch
	c.cfg.Channels = func(of string) []wire.ChannelEntry {
		if of != instrument {
			t.Errorf("asked for %s", of)
		}
		return []wire.ChannelEntry{{Name: "x", Datagrams: "raw", Payload: wire.PayloadEntry{Type: wire.PayloadCSV, Separator: ","},
			Time:       wire.ChannelTimeEntry{Source: wire.TimePayload, Format: wire.TimeISO8601, Columns: []int{1}, Precision: wire.PrecisionMilliseconds},
			Parameters: []wire.ParameterEntry{{Name: "x", Type: wire.ParameterDouble, Column: 2}}}}
	}
	ch := newChannel(channelKey{instrument, "raw"}, nil)
	n, _, err := c.object(t.Context(), ch, wire.SegmentRange{Channel: "raw", Epoch: epoch, First: 1, Last: 4}, wire.DayOf(noon))
	if err != nil {
		t.Fatal(err)
	}
	// A time that is not believed is kept apart, and the receipt of its datagram stands for it.
	from, to, doubted := time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC), noon.Add(3), time.Date(2007, 1, 1, 0, 0, 0, 0, time.UTC)
	if n.Doubted == nil || !n.Doubted.From.Equal(doubted) || !n.Doubted.To.Equal(doubted) {
		t.Errorf("doubted %+v", n.Doubted)
	}
	if !n.ObservedFrom.Equal(from) || !n.ObservedTo.Equal(to) || n.TimeSource != wire.TimeSourcePayload || !n.ReceivedAt.Equal(noon.Add(3)) || n.Segment.Datagrams != 4 || n.Backfill {
		t.Errorf("%s to %s by %s, received %s, backfill %v, %d datagrams", n.ObservedFrom, n.ObservedTo, n.TimeSource, n.ReceivedAt, n.Backfill, n.Segment.Datagrams)
	}
	if got := testutil.ToFloat64(c.cfg.Metrics.undecodable.WithLabelValues(instrument)); got != 1 {
		t.Errorf("%v datagrams count as undecodable", got)
	}
	// The next one to cut the range finds it, whatever is declared by then.
	c.cfg.Channels = nil
	again, _, err := c.object(t.Context(), ch, wire.SegmentRange{Channel: "raw", Epoch: epoch, First: 1, Last: 4}, wire.DayOf(noon))
	if err != nil || again.TimeSource != wire.TimeSourcePayload || !again.ObservedFrom.Equal(from) {
		t.Errorf("%v %+v", err, again)
	}
}
