// SPDX-License-Identifier: Apache-2.0

package dayclose

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// totals returns what a version of a day says of a column, by the writer's incarnation.
func (l *lab) totals(day wire.Day, version int, instrument string, step wire.Step, writer string) map[string]wire.Totals {
	l.Helper()
	got, there := l.closed(wire.KindLedger, day, version)
	if !there {
		l.Fatalf("%s has no version %d", day, version)
	}
	value, there := got[wire.LedgerKey(instrument, day, step, writer)]
	if !there {
		return nil
	}
	entry, err := wire.Decode[wire.LedgerEntry]([]byte(value))
	if err != nil {
		l.Fatal(err)
	}
	return entry.Incarnations
}

// TestOpenDaysMadeAnew: days that were not closed when the ledger was lost, or all of
// JetStream was, are not passed over: they are closed with all that the manifests list.
func TestOpenDaysMadeAnew(t *testing.T) {
	for name, lost := range map[string][]string{
		"the ledger":     {wire.LedgerBucket(site)},
		"all of NATS":    {wire.LedgerBucket(site), wire.CursorBucket(site), wire.GapsBucket(site), wire.StatusBucket(site)},
		"before a first": {wire.LedgerBucket(site), wire.CursorBucket(site)},
	} {
		t.Run(name, func(t *testing.T) { openDaysMadeAnew(start(t), lost, name != "before a first") })
	}
}

func openDaysMadeAnew(l *lab, lost []string, closer bool) {
	now := time.Now().UTC()
	early, day := wire.DayOf(now.AddDate(0, 0, -6)), wire.DayOf(now.AddDate(0, 0, -3))
	at, err := day.Start()
	if err != nil {
		l.Fatal(err)
	}
	at = at.Add(time.Hour)
	l.received("allsky-1", early, 3)
	l.received("allsky-1", day, 5)
	l.reports(wire.GatewayStatus{Gateway: "gateway-0", ReportedAt: now, Spool: &wire.SpoolStatus{Objects: 1, Oldest: &at}})
	if closer {
		if status := l.pass(l.closer(), now); status.ClosedTo >= day || status.ClosedTo < early {
			l.Fatalf("closed to %s", status.ClosedTo)
		}
	}
	object := func(i int, gateway, incarnation string) wire.Record {
		digest := wire.Digest{31: byte(i)}
		key := wire.RawKey(site, "allsky-1", at.Add(time.Duration(i)*time.Second), digest)
		return wire.Record{ID: key, Key: key, Size: 100, Digest: digest, State: wire.StateCurrent, ReceivedAt: at.Add(time.Duration(i) * time.Second),
			TimeSource: wire.TimeSourceReceived, Gateway: gateway, Incarnation: incarnation}
	}
	duplicate, segment := object(4, "gateway-1", "a"), object(5, "gateway-1", "a")
	duplicate.State, duplicate.DuplicateOf = wire.StateDuplicate, object(3, "", "").ID
	segment.Segment = &wire.SegmentRange{Channel: "raw", Epoch: "e", First: 1, Last: 9, Messages: 9, Datagrams: 600, DatagramBytes: 6000, Undecodable: 2}
	l.PutPart("allsky-1", day, 1, object(1, "gateway-0", "one"), object(2, "gateway-0", "two"))
	l.PutPart("allsky-1", day, 2, object(3, "gateway-1", "a"), duplicate)
	l.PutPart("mag-1", day, 1, segment)

	for _, bucket := range lost {
		if err := l.JetStream.DeleteKeyValue(l.Context(), bucket); err != nil {
			l.Fatal(err)
		}
		if _, err := l.JetStream.CreateKeyValue(l.Context(), jetstream.KeyValueConfig{Bucket: bucket}); err != nil {
			l.Fatal(err)
		}
	}
	l.reports(wire.GatewayStatus{Gateway: "gateway-0", ReportedAt: now, Spool: &wire.SpoolStatus{}})
	// Gateways live on: of what they counted before they write what they still hold.
	for gateway, incarnations := range map[string]map[string]wire.Totals{
		"gateway-0": {"two": {Objects: 1, ObjectBytes: 100, Acknowledged: 1}}, "gateway-1": {"b": {Objects: 1, Acknowledged: 1}},
	} {
		value, err := wire.Encode(wire.LedgerEntry{Incarnations: incarnations})
		l.put(wire.LedgerBucket(site), wire.LedgerKey("allsky-1", day, wire.StepReceived, gateway), value, err)
	}

	for range 2 { // the archivist that closes it, and the one that takes over
		if status := l.pass(l.closer(), now.Add(2*time.Hour)); status.ClosedTo < day {
			l.Errorf("closed to %s, want %s", status.ClosedTo, day)
		}
	}
	one := func(digest byte) wire.Totals {
		return wire.Totals{Objects: 1, ObjectBytes: 100, Digest: wire.Digest{31: digest}}
	}
	for _, c := range []struct {
		instrument string
		step       wire.Step
		writer     string
		want       map[string]wire.Totals
	}{
		{"allsky-1", wire.StepReceived, "gateway-0", map[string]wire.Totals{"two": {Objects: 1, ObjectBytes: 100, Acknowledged: 1}}},
		{"allsky-1", wire.StepReceived, "gateway-1", map[string]wire.Totals{"b": {Objects: 1, Acknowledged: 1}}},
		{"allsky-1", wire.StepAnnounced, wire.ArchivistWriter, map[string]wire.Totals{"one": one(1), "two": one(2), "a": one(3).Plus(one(4))}},
		{"allsky-1", wire.StepDuplicates, wire.ArchivistWriter, map[string]wire.Totals{"manifest": one(4)}},
		{"allsky-1", wire.StepStored, wire.ArchivistWriter, nil},
		{"mag-1", wire.StepStored, wire.ArchivistWriter, map[string]wire.Totals{"raw": {Datagrams: 600, DatagramBytes: 6000,
			Dropped: map[wire.Cause]uint64{wire.CauseUndecodable: 2}}}},
		{"mag-1", wire.StepReceived, "gateway-1", nil},
	} {
		if diff := cmp.Diff(c.want, l.totals(day, 1, c.instrument, c.step, c.writer)); diff != "" {
			l.Errorf("%s, %s of %s (-want +got):\n%s", c.instrument, c.step, c.writer, diff)
		}
	}
	if _, there := l.closed(wire.KindLedger, day, 2); there {
		l.Error("the same was closed twice")
	}
	if closer {
		if got := l.totals(early, 1, "allsky-1", wire.StepReceived, "gateway-0"); got["one"].Objects != 3 {
			l.Errorf("the day that was closed before: %+v", got)
		}
	}
}
