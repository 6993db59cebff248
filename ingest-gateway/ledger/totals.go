// SPDX-License-Identifier: Apache-2.0

package ledger

import "github.com/substorm/substorm/internal/wire"

// totals returns what a slot counts as received, spelled with the causes of its counters. The slot's received must not
// change meanwhile.
func (s *slot) totals(causes []wire.Cause) wire.Totals {
	current := s.current()
	return wire.Totals{
		Objects: current.objects, ObjectBytes: current.objectBytes, Digest: current.digest, Resolved: current.resolved, ResolvedBytes: current.resolvedBytes,
		Datagrams: s.get(datagramsReceived), DatagramBytes: s.get(datagramBytesReceived),
		Acknowledged: s.get(objectsAcknowledged),
		Unfinished:   byCause(s, unfinishedFirst, causes), UnfinishedBytes: s.get(unfinishedBytes),
		Dropped: byCause(s, droppedFirst, causes),
	}
}

func byCause(s *slot, first counter, causes []wire.Cause) map[wire.Cause]uint64 {
	var counts map[wire.Cause]uint64
	for i, cause := range causes {
		if n := s.get(first + counter(i)); n > 0 {
			if counts == nil {
				counts = map[wire.Cause]uint64{}
			}
			counts[cause] = n
		}
	}
	return counts
}

// finalTotals returns what an incarnation that has ended received, by instrument and day. Datagrams that were read, and neither
// received nor dropped, are unknown. Objects that were begun and are neither received nor unfinished ended with it: they
// are counted on the instrument's last day, since an object may be begun on one day and be received on the next.
func finalTotals(slots []*slot, causes []wire.Cause) map[dayKey]wire.Totals {
	totals := map[dayKey]wire.Totals{}
	begun, ended := map[string]count{}, map[string]count{}
	last := map[string]wire.Day{}
	for _, s := range slots {
		instrument, day, ok := s.key()
		if !ok {
			continue
		}
		t := s.totals(causes)
		t.Unknown = excess(s.get(datagramsRead), t.Datagrams+read(t.Dropped))
		k := dayKey{instrument, day}
		totals[k] = totals[k].Plus(t)
		begun[instrument] = begun[instrument].plus(count{s.get(objectsBegun), s.get(objectBytesRead)})
		ended[instrument] = ended[instrument].plus(count{t.Objects + sum(t.Unfinished) - t.Resolved, t.ObjectBytes + t.UnfinishedBytes - t.ResolvedBytes})
		last[instrument] = max(last[instrument], day)
	}
	for instrument, all := range begun {
		killed := wire.Totals{UnfinishedBytes: excess(all.bytes, ended[instrument].bytes)}
		if n := excess(all.objects, ended[instrument].objects); n > 0 {
			killed.Unfinished = map[wire.Cause]uint64{wire.CauseKilled: n}
			k := dayKey{instrument, last[instrument]}
			totals[k] = totals[k].Plus(killed)
		}
	}
	return totals
}

// count is of objects and their bytes.
type count struct{ objects, bytes uint64 }

func (c count) plus(o count) count { return count{c.objects + o.objects, c.bytes + o.bytes} }

// read sums up the drops of datagrams that were read.
func read(dropped map[wire.Cause]uint64) uint64 {
	return sum(dropped) - dropped[wire.CauseKernelBuffer]
}

func sum(counts map[wire.Cause]uint64) (sum uint64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// excess is what a is more than b.
func excess(a, b uint64) uint64 { return a - min(a, b) }
