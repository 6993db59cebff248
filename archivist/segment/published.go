// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// A gateway numbers its publications and hands them to its committer in that order. The
// committer has at most stream.MaxGroup messages on their way at once, and begins with the
// next only when all of them are settled. So when a message is stored for the first time,
// fewer than stream.MaxGroup messages of a higher number are in the stream; one that has
// more above it is there a second time.

const (
	// keepNumbers is how many of the highest numbers are remembered of each incarnation.
	keepNumbers = stream.MaxGroup
	// keepIncarnations of a channel are remembered, and the newest of each of keepGateways gateways
	// (as many as a pool may have): no other duplicates what it published. Each is remembered for
	// keepIncarnation after its last message. It takes 2 to 7 KiB in the cursor, all of them
	// together less than the 1 MiB that a message of NATS may have.
	keepIncarnations = 32
	keepGateways     = 100
	keepIncarnation  = 30 * 24 * time.Hour
)

// published identifies the telemetry messages of a channel that are in segments.
type published struct {
	incarnations map[string]*numbers
	// others are the ids of messages that are no gateway's, of the segment that is being
	// cut alone.
	others map[[16]byte]struct{}
}

// numbers are the numbers of an incarnation's publications that were seen.
type numbers struct {
	// floor: all up to it were seen, or never will be; 0 implies nothing about number 0.
	floor uint64
	// above are the highest that were seen, ascending.
	above []uint64
	at    time.Time
}

// publishedOf returns what a cursor remembers. Changes to it do not change the cursor.
func publishedOf(c *wire.SegmentCursor) *published {
	p := &published{incarnations: make(map[string]*numbers, len(c.Published)), others: map[[16]byte]struct{}{}}
	for name, stored := range c.Published {
		n := &numbers{floor: stored.Floor, above: make([]uint64, len(stored.Above)), at: stored.At}
		last := stored.Floor
		for i, difference := range stored.Above {
			last += difference
			n.above[i] = last
		}
		p.incarnations[name] = n
	}
	return p
}

// clone returns a copy for the next segment.
func (p *published) clone() *published {
	c := &published{incarnations: make(map[string]*numbers, len(p.incarnations)), others: map[[16]byte]struct{}{}}
	for name, n := range p.incarnations {
		c.incarnations[name] = &numbers{floor: n.floor, above: slices.Clone(n.above), at: n.at}
	}
	return c
}

// save writes into a cursor what is remembered, without incarnations that ended long ago.
func (p *published) save(c *wire.SegmentCursor) {
	p.forget()
	c.Published = make(map[string]wire.Published, len(p.incarnations))
	for name, n := range p.incarnations {
		stored := wire.Published{Floor: n.floor, Above: make([]uint64, len(n.above)), At: n.at}
		last := n.floor
		for i, number := range n.above {
			stored.Above[i], last = number-last, number
		}
		c.Published[name] = stored
	}
}

// isDuplicate says whether a message was seen before, and remembers it. A message without an id
// cannot be distinguished from others.
func (p *published) isDuplicate(m stream.Message) bool {
	id := m.Header.Get(wire.HeaderID)
	if id == "" {
		return false
	}
	gateway, incarnation, number, err := wire.ParsePublicationID(id)
	if err != nil {
		sum := sha256.Sum256([]byte(id))
		_, seen := p.others[[16]byte(sum[:16])]
		p.others[[16]byte(sum[:16])] = struct{}{}
		return seen
	}
	name := gateway + "/" + incarnation
	n := p.incarnations[name]
	if n == nil {
		n = &numbers{}
		p.incarnations[name] = n
	}
	if m.At.After(n.at) {
		n.at = m.At.UTC()
	}
	return !n.add(number)
}

// add returns false for a number that was there.
func (n *numbers) add(number uint64) bool {
	if n.floor > 0 && number <= n.floor {
		return false
	}
	at, found := slices.BinarySearch(n.above, number)
	if found {
		return false
	}
	n.above = slices.Insert(n.above, at, number)
	if len(n.above) > keepNumbers {
		n.floor = n.above[0]
		n.above = slices.Delete(n.above, 0, 1)
	}
	return true
}

// forget drops incarnations whose last message is long ago, by the stream's clock, and the oldest
// if there are too many.
func (p *published) forget() {
	names := slices.SortedFunc(maps.Keys(p.incarnations), func(a, b string) int {
		return p.incarnations[b].at.Compare(p.incarnations[a].at)
	})
	gateways := map[string]bool{}
	for i, name := range names {
		gateway, _, _ := strings.Cut(name, "/")
		many := i >= keepIncarnations && (gateways[gateway] || len(gateways) == keepGateways)
		if many || p.incarnations[names[0]].at.Sub(p.incarnations[name].at) > keepIncarnation {
			delete(p.incarnations, name)
			continue
		}
		gateways[gateway] = true
	}
}
