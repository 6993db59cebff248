// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/wire"
)

// Of a day with more than maxHeld lines no set of its identities is held. Its lines are
// compared in shares of the identities, one after the other, and bits say which lines
// hold. A compacted day lists each object once, so only the identities of the parts beside
// it are compared; where there are none, the day is read once.

// maxHeld is how many identities are held in memory at once. A variable for tests.
var maxHeld = 1 << 17

// bits are one for each line of a file.
type bits []uint64

func (b *bits) set(line int) {
	for len(*b) <= line/64 {
		*b = append(*b, 0)
	}
	(*b)[line/64] |= 1 << (line % 64)
}

func (b bits) has(line int) bool { return line/64 < len(b) && b[line/64]&(1<<(line%64)) != 0 }

// large says which lines of a large day hold, by file.
type large struct {
	// skip are the lines that do not hold.
	skip []bits
	// moved are lines that hold, of objects that lie where their first lines say, which
	// are those of remember.
	remember, moved []bits
}

// rank orders the lines of an object: that with the greatest rank holds.
type rank uint8

const (
	rankListed    rank = iota // of several the first holds
	rankChanged               // of several the last holds
	rankPurged                // of several the last holds
	rankWithdrawn             // of several the first holds
)

func rankOf(r *wire.Record) rank {
	switch {
	case r.State == wire.StateWithdrawn:
		return rankWithdrawn
	case r.State == wire.StatePurged:
		return rankPurged
	case r.Changes():
		return rankChanged
	default:
		return rankListed
	}
}

// standing is what is known of an object while lines are compared: its first line, the one
// that holds, and where these say that its bytes lie, as hashes.
type standing struct {
	first, holds        place
	firstLies, holdLies uint64
	rank                rank
}

func (s *standing) beats(other *standing) bool {
	switch {
	case s.rank != other.rank:
		return s.rank > other.rank
	case s.rank == rankChanged, s.rank == rankPurged:
		return s.holds > other.holds
	default:
		return s.holds < other.holds
	}
}

// comparison is that of one share of the identities.
type comparison struct {
	*dayFiles
	share, shares uint64
	seed          maphash.Seed

	mu   sync.Mutex
	held map[IDHash]standing
}

// compare finds out which lines of a large day hold.
func (d *dayFiles) compare(ctx context.Context) error {
	d.large = &large{make([]bits, len(d.keys)), make([]bits, len(d.keys)), make([]bits, len(d.keys))}
	inParts, first := 0, 0
	if name, err := wire.ParseManifestKey(d.keys[0]); err == nil && name.Compacted {
		first = 1
	}
	for _, lines := range d.lines[first:] {
		inParts += lines
	}
	shares := (inParts + maxHeld - 1) / maxHeld
	for share := range shares {
		c := &comparison{dayFiles: d, share: uint64(share), shares: uint64(shares), seed: maphash.MakeSeed(), held: map[IDHash]standing{}}
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(fetches)
		for number := first; number < len(d.keys); number++ {
			group.Go(func() error { return c.add(groupCtx, number, false) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		if first > 0 {
			if err := c.add(ctx, 0, true); err != nil {
				return err
			}
		}
		c.end()
	}
	return nil
}

// add compares the lines of a file; known: only those of objects that other files list.
func (c *comparison) add(ctx context.Context, number int, known bool) error {
	line := -1
	for r, err := range c.file(ctx, c.keys[number]) {
		if err != nil {
			return err
		}
		line++
		id := HashID(r.ID)
		if uint64(binary.BigEndian.Uint32(id[:]))*c.shares>>32 != c.share {
			continue
		}
		at := placeOf(number, line)
		where := maphash.Comparable(c.seed, lies{r.Key, r.Offset, r.Length})
		c.line(id, standing{at, at, where, where, rankOf(&r)}, known)
	}
	return nil
}

func (c *comparison) line(id IDHash, is standing, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, again := c.held[id]
	if !again {
		if !known {
			c.held[id] = is
		}
		return
	}
	best, other := was, is
	if is.beats(&was) {
		best, other = is, was
	}
	c.set(c.large.skip, other.holds)
	if best.first > other.first {
		best.first, best.firstLies = other.first, other.firstLies
	}
	c.held[id] = best
}

// end notes which of the objects that were changed do not lie where the line says that holds.
func (c *comparison) end() {
	for _, s := range c.held {
		if (s.rank == rankChanged || s.rank == rankPurged) && s.first < s.holds && s.firstLies != s.holdLies {
			c.set(c.large.remember, s.first)
			c.set(c.large.moved, s.holds)
		}
	}
}

func (c *comparison) set(in []bits, at place) { in[at>>32].set(int(at & (1<<32 - 1))) }

// records yields the lines of a large day that hold.
func (l *large) records(ctx context.Context, d *dayFiles, yield func(wire.Record, error) bool) {
	first := map[IDHash]lies{}
	for number, key := range d.keys {
		line := -1
		for r, err := range d.file(ctx, key) {
			if err != nil {
				yield(wire.Record{}, err)
				return
			}
			line++
			if l.remember[number].has(line) {
				first[HashID(r.ID)] = lies{r.Key, r.Offset, r.Length}
			}
			if l.skip[number].has(line) {
				continue
			}
			if l.moved[number].has(line) {
				at := first[HashID(r.ID)]
				r.Key, r.Offset, r.Length = at.key, at.offset, at.length
				delete(first, HashID(r.ID))
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}
