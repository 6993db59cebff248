// SPDX-License-Identifier: Apache-2.0

package ledger

import "github.com/substorm/substorm/internal/wire"

// totals returns the cell's counts of a step, spelled with the causes of its counters.
func (c *cell) totals(step wire.Step, causes []wire.Cause) wire.Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.settled.plus(c.open[0]).plus(c.open[1])
	switch step {
	case wire.StepReceived:
		return wire.Totals{
			Objects: c.slot.get(objectsReceived), ObjectBytes: c.slot.get(objectBytesReceived), Digest: c.receivedDigest,
			// A datagram has no receipt on the wire: it is received when it is safe.
			Datagrams: a.Datagrams, DatagramBytes: a.DatagramBytes,
			Acknowledged: c.slot.get(objectsAcknowledged),
			Unfinished:   byCause(c.slot, unfinishedFirst, causes), UnfinishedBytes: c.slot.get(unfinishedBytes),
			Dropped: byCause(c.slot, droppedFirst, causes),
		}
	case wire.StepStored:
		return wire.Totals{Objects: c.slot.get(objectsStored), ObjectBytes: c.slot.get(objectBytesStored), Digest: c.storedDigest}
	case wire.StepAnnounced:
		return a.totals()
	default:
		return wire.Totals{}
	}
}

func (a announced) totals() wire.Totals {
	return wire.Totals{
		Objects: a.Objects, ObjectBytes: a.ObjectBytes, Digest: a.Digest,
		Datagrams: a.Datagrams, DatagramBytes: a.DatagramBytes,
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

// adopt adds what this incarnation wrote of a step before the cell was dropped from memory.
func (c *cell) adopt(step wire.Step, t wire.Totals, causeOf func(wire.Cause) counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch step {
	case wire.StepReceived:
		c.slot.add(objectsReceived, t.Objects)
		c.slot.add(objectBytesReceived, t.ObjectBytes)
		c.receivedDigest = c.receivedDigest.Plus(t.Digest)
		c.slot.add(objectsAcknowledged, t.Acknowledged)
		c.slot.add(unfinishedBytes, t.UnfinishedBytes)
		c.slot.add(objectsBegun, t.Objects)
		c.slot.add(objectBytesRead, t.ObjectBytes+t.UnfinishedBytes)
		for cause, n := range t.Unfinished {
			c.slot.add(unfinishedFirst+causeOf(cause), n)
			c.slot.add(objectsBegun, n)
		}
		for cause, n := range t.Dropped {
			c.slot.add(droppedFirst+causeOf(cause), n)
			if cause != wire.CauseKernelBuffer {
				c.slot.add(datagramsRead, n)
			}
		}
	case wire.StepStored:
		c.slot.add(objectsStored, t.Objects)
		c.slot.add(objectBytesStored, t.ObjectBytes)
		c.storedDigest = c.storedDigest.Plus(t.Digest)
	case wire.StepAnnounced:
		c.settled = c.settled.plus(announced{
			Objects: t.Objects, ObjectBytes: t.ObjectBytes, Digest: t.Digest, Datagrams: t.Datagrams, DatagramBytes: t.DatagramBytes,
		})
		c.slot.add(datagramsRead, t.Datagrams)
		c.slot.add(datagramBytesRead, t.DatagramBytes)
	}
}
