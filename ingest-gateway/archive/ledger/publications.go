// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"sync"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Publications are numbered and belong to epochs, of which one or two are open: the current one and, while some of its
// messages still wait for their acknowledgement, the one before. What an epoch announced is counted apart, and added to
// the settled counts when its last message is settled. Then a checkpoint is written: the settled counts, the number of
// the current epoch's first publication, and a stream position before which none of its messages can lie. So what an
// incarnation announced is what its checkpoint says plus what the streams hold after that position with that number or
// a higher one.
type publications struct {
	mu      sync.Mutex
	next    uint64 // number of the next publication, from 1
	current int    // which of epochs
	epochs  [2]epoch
	acked   position // the highest sequences that were acknowledged
	// streams are the epochs of the base streams, once they are known.
	streams *position
}

type epoch struct {
	from       position
	first      uint64
	begun      time.Time
	used       bool
	unresolved int
	// open: its counts are not yet in the settled ones.
	open bool
}

// position is a place in both base streams.
type position struct {
	Observations place `json:"observations"`
	Notices      place `json:"notices"`
}

// place is the last sequence before what is meant, in the stream that Epoch names; the zero place is the beginning.
type place struct {
	Epoch    string `json:"epoch,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"`
}

// later returns the later of two places, either of which may be used. Those of different streams cannot be compared.
func (p place) later(o place) place {
	switch {
	case p.Epoch == "":
		return o
	case o.Epoch != p.Epoch && o.Epoch != "":
		return place{}
	case o.Sequence > p.Sequence:
		return o
	default:
		return p
	}
}

// announced are counts of what is in the base streams.
type announced struct {
	Objects       uint64      `json:"objects,omitempty"`
	ObjectBytes   uint64      `json:"objectBytes,omitempty"`
	Digest        wire.Digest `json:"digest"`
	Datagrams     uint64      `json:"datagrams,omitempty"`
	DatagramBytes uint64      `json:"datagramBytes,omitempty"`
	// Adopted of the objects, and their bytes, were begun by an earlier incarnation.
	Adopted      uint64 `json:"adopted,omitempty"`
	AdoptedBytes uint64 `json:"adoptedBytes,omitempty"`
}

func (a announced) plus(b announced) announced {
	return announced{
		Objects: a.Objects + b.Objects, ObjectBytes: a.ObjectBytes + b.ObjectBytes, Digest: a.Digest.Plus(b.Digest),
		Datagrams: a.Datagrams + b.Datagrams, DatagramBytes: a.DatagramBytes + b.DatagramBytes,
		Adopted: a.Adopted + b.Adopted, AdoptedBytes: a.AdoptedBytes + b.AdoptedBytes,
	}
}

// checkpointEvery is how long an epoch lasts at least: a recount reads what all gateways published in about two epochs.
const checkpointEvery = 10 * time.Second

func (p *publications) begin(from position) {
	p.next = 1
	p.epochs[0] = epoch{from: from, first: 1, begun: time.Now(), open: true}
}

// Publication is one message to a base stream. One of its methods must be called, once, with what became of it.
type Publication struct {
	// Number counts the incarnation's publications, from 1: see wire.PublicationID.
	Number uint64
	ledger *Ledger
	epoch  int
}

// Publish begins a publication. Call it before the message is handed to the stream.
func (l *Ledger) Publish() Publication {
	p := &l.publications
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.next
	p.next++
	e := &p.epochs[p.current]
	e.unresolved++
	e.used = true
	return Publication{Number: n, ledger: l, epoch: p.current}
}

// AnnouncedObject says that the notice of an object is in the stream, at a sequence.
func (p Publication) AnnouncedObject(instrument string, at time.Time, size int64, digest wire.Digest, sequence uint64) {
	p.ledger.cell(instrument, at).announce(p.epoch, announced{Objects: 1, ObjectBytes: uint64(size), Digest: digest})
	p.resolve(position{Notices: place{Sequence: sequence}})
}

// AnnouncedAdopted is AnnouncedObject for an object that an earlier incarnation received, see Adopt.
func (p Publication) AnnouncedAdopted(instrument string, at time.Time, size int64, digest wire.Digest, sequence uint64) {
	a := announced{Objects: 1, ObjectBytes: uint64(size), Digest: digest, Adopted: 1, AdoptedBytes: uint64(size)}
	p.ledger.cell(instrument, at).announce(p.epoch, a)
	p.resolve(position{Notices: place{Sequence: sequence}})
}

// AnnouncedDatagrams says that a telemetry message is in the stream, at a sequence: n datagrams with payloads of size bytes.
func (p Publication) AnnouncedDatagrams(instrument string, at time.Time, n, size int, sequence uint64) {
	p.ledger.cell(instrument, at).announce(p.epoch, announced{Datagrams: uint64(n), DatagramBytes: uint64(size)})
	p.resolve(position{Observations: place{Sequence: sequence}})
}

// NotAnnounced says that the message is not in the stream and never will be.
func (p Publication) NotAnnounced() { p.resolve(position{}) }

// Unknown says that nobody knows whether the message is in the stream: the next incarnation will look.
func (p Publication) Unknown() {}

func (p Publication) resolve(at position) {
	ps := &p.ledger.publications
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.epochs[p.epoch].unresolved--
	ps.acked.Notices.Sequence = max(ps.acked.Notices.Sequence, at.Notices.Sequence)
	ps.acked.Observations.Sequence = max(ps.acked.Observations.Sequence, at.Observations.Sequence)
}

func (c *cell) announce(epoch int, a announced) {
	c.mu.Lock()
	c.open[epoch] = c.open[epoch].plus(a)
	c.slot.add(objectsAnnounced, a.Objects)
	c.slot.add(objectBytesAnnounced, a.ObjectBytes)
	c.slot.add(datagramsAnnounced, a.Datagrams)
	c.slot.add(datagramBytesAnnounced, a.DatagramBytes)
	c.mu.Unlock()
	c.dirty.Store(true)
}

// advance settles the epoch before the current one where nothing of it is open any more, writes a checkpoint, and
// begins a new epoch where the current one is old enough.
func (l *Ledger) advance(minAge time.Duration) error {
	p := &l.publications
	p.mu.Lock()
	before := 1 - p.current
	settle := p.epochs[before].open && p.epochs[before].unresolved == 0
	p.mu.Unlock()
	if settle {
		l.fold(before)
		p.mu.Lock()
		p.epochs[before].open = false
		p.mu.Unlock()
		if err := l.saveCheckpoint(); err != nil {
			return err // the one before is as good, only longer to recount
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := &p.epochs[p.current]
	if p.epochs[before].open || !now.used || p.streams == nil || time.Since(now.begun) < minAge {
		return nil
	}
	from := now.from
	if p.acked.Observations.Sequence > 0 {
		from.Observations = place{p.streams.Observations.Epoch, p.acked.Observations.Sequence}
	}
	if p.acked.Notices.Sequence > 0 {
		from.Notices = place{p.streams.Notices.Epoch, p.acked.Notices.Sequence}
	}
	p.epochs[before] = epoch{from: from, first: p.next, begun: time.Now(), open: true}
	p.current = before
	return nil
}

// fold adds what an epoch announced to the settled counts.
func (l *Ledger) fold(epoch int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, c := range l.cells {
		c.mu.Lock()
		c.settled = c.settled.plus(c.open[epoch])
		c.open[epoch] = announced{}
		c.mu.Unlock()
	}
}

// allSettled says whether nothing is on its way, and closes both epochs then.
func (l *Ledger) allSettled() bool {
	p := &l.publications
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epochs[0].unresolved == 0 && p.epochs[1].unresolved == 0
}
