// SPDX-License-Identifier: Apache-2.0

package gaps

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

// TestTake: observed time stays so when its objects expire, but not when they are retracted; a
// duplicate observes nothing, nor does an object on an undeclared channel.
func TestTake(t *testing.T) {
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	w := window{from: start, to: start.AddDate(0, 0, 1), overdue: time.Minute}
	at := func(hour int) time.Time { return start.Add(time.Duration(hour) * time.Hour) }
	record := func(hour int, state wire.State, by string) wire.Record {
		return wire.Record{ReceivedAt: at(hour), State: state, ChangedBy: by}
	}
	from, to := at(20), at(21)
	segment := func(undecodable uint64) wire.Record {
		return wire.Record{ReceivedAt: at(22), ObservedFrom: &from, ObservedTo: &to, State: wire.StateCurrent,
			Segment: &wire.SegmentRange{Channel: "raw", Datagrams: 5, Undecodable: undecodable}}
	}
	channels := channelsOf(&wire.InstrumentEntry{SegmentAgeMillis: 60_000, Listeners: []wire.ListenerEntry{{Protocol: wire.ProtocolHTTP}, {Protocol: wire.ProtocolUDP, Channel: "raw"}}})
	other := segment(0)
	other.Segment = &wire.SegmentRange{Channel: "other"}
	for _, r := range []wire.Record{record(1, wire.StateCurrent, ""), record(2, wire.StateSuperseded, ""), record(3, wire.StateRetracted, "ann"),
		record(4, wire.StatePurged, "ann"), record(5, wire.StatePurged, wire.ByRetention), record(6, wire.StateDuplicate, ""), record(30, wire.StateCurrent, ""),
		segment(0), segment(6), other} {
		w.take(channels, &r)
	}
	one := func(hours ...int) (all []wire.TimeSpan) {
		for _, h := range hours {
			all = append(all, wire.TimeSpan{From: at(h), To: at(h)})
		}
		return all
	}
	want := map[string]Archived{
		"":    {Observed: one(1, 2, 5), Retracted: one(3, 4), Delay: Duration(listing)},
		"raw": {Observed: []wire.TimeSpan{{From: from, To: to}}, Undecodable: []wire.TimeSpan{{From: from, To: to}}, Delay: Duration(listing + time.Minute)},
	}
	if diff := cmp.Diff(want, channels); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
