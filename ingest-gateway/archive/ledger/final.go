// SPDX-License-Identifier: Apache-2.0

package ledger

import "github.com/substorm/substorm/internal/wire"

// stepKey names an entry of the ledger but for its writer.
type stepKey struct {
	dayKey
	step wire.Step
}

func (k stepKey) key(gateway string) string {
	return wire.LedgerKey(k.instrument, k.day, k.step, gateway)
}

// totals returns the final totals of an incarnation that was killed. What it announced is what the streams hold. An
// object that is announced counts as stored and received, though nobody knows whether its receipt got out; one that
// was begun and is none of that is unfinished. Datagrams that were read, and neither announced nor dropped, are unknown.
func (c *counted) totals(p *previous) map[stepKey]wire.Totals {
	days := c.days
	slots := map[dayKey]*slot{}
	for _, s := range p.slots {
		instrument, day, _ := s.key()
		k := dayKey{instrument, day}
		slots[k] = s
		days[k] = atLeast(days[k], s)
	}
	all := map[stepKey]wire.Totals{}
	adopted := map[string]Spooled{}
	for k, a := range days {
		adopted[k.instrument] = adopted[k.instrument].plus(Spooled{a.Adopted, a.AdoptedBytes})
		s := slots[k]
		if s == nil {
			s = new(slot)
		}
		put := func(step wire.Step, t wire.Totals) { all[stepKey{k, step}] = t }
		put(wire.StepAnnounced, a.totals())
		stored := a.totals()
		stored.Datagrams, stored.DatagramBytes = 0, 0 // the archivist's column
		put(wire.StepStored, stored)
		put(wire.StepReceived, receivedOf(a, s, p.causes))
	}
	addKilled(all, slots, adopted, p.checkpoint.waiting())
	return all
}

// atLeast returns what was announced, which is no less than what was acknowledged before the kill: the stream may have
// been trimmed meanwhile.
func atLeast(a announced, s *slot) announced {
	a.Objects = max(a.Objects, s.get(objectsAnnounced))
	a.ObjectBytes = max(a.ObjectBytes, s.get(objectBytesAnnounced))
	a.Datagrams = max(a.Datagrams, s.get(datagramsAnnounced))
	a.DatagramBytes = max(a.DatagramBytes, s.get(datagramBytesAnnounced))
	return a
}

func receivedOf(a announced, s *slot, causes []wire.Cause) wire.Totals {
	t := a.totals()
	t.Acknowledged = s.get(objectsAcknowledged) // also of what waits in the spool, and the next incarnation counts as received
	t.Unfinished, t.UnfinishedBytes = byCause(s, unfinishedFirst, causes), s.get(unfinishedBytes)
	t.Dropped = byCause(s, droppedFirst, causes)
	accounted := a.Datagrams
	for cause, n := range t.Dropped {
		if cause != wire.CauseKernelBuffer {
			accounted += n
		}
	}
	if read := s.get(datagramsRead); read > accounted {
		t.Unknown = read - accounted
	}
	return t
}

// addKilled counts the objects that were on their way at the kill as unfinished, on the instrument's last day. Adopted
// objects were not begun by this incarnation, and those that wait in the spool are not lost.
func addKilled(all map[stepKey]wire.Totals, slots map[dayKey]*slot, adopted, waiting map[string]Spooled) {
	begun, bytesRead, last := map[string]uint64{}, map[string]uint64{}, map[string]wire.Day{}
	for k, s := range slots {
		begun[k.instrument] += s.get(objectsBegun)
		bytesRead[k.instrument] += s.get(objectBytesRead)
		last[k.instrument] = max(last[k.instrument], k.day)
	}
	ended, bytesEnded := map[string]uint64{}, map[string]uint64{}
	for k, t := range all {
		if k.step != wire.StepReceived {
			continue
		}
		ended[k.instrument] += t.Objects
		for _, n := range t.Unfinished {
			ended[k.instrument] += n
		}
		bytesEnded[k.instrument] += t.ObjectBytes + t.UnfinishedBytes
	}
	for instrument, n := range begun {
		a, w := adopted[instrument], waiting[instrument]
		ended[instrument] += w.Objects - a.Objects
		bytesEnded[instrument] += w.Bytes - a.Bytes
		if n <= ended[instrument] {
			continue
		}
		k := stepKey{dayKey{instrument, last[instrument]}, wire.StepReceived}
		t := all[k]
		unfinished := map[wire.Cause]uint64{wire.CauseKilled: n - ended[instrument]}
		extra := wire.Totals{Unfinished: unfinished}
		if b := bytesRead[instrument]; b > bytesEnded[instrument] {
			extra.UnfinishedBytes = b - bytesEnded[instrument]
		}
		all[k] = t.Plus(extra)
	}
}
