// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/wire"
)

// No set of identities is held for a day with more than maxHeld lines. The lines to be compared are split once into shares of the
// identities, in scratch files. Each file is then compared in memory, and bits say which lines hold. So the time grows with the lines. A
// compacted day lists each object once, so only the identities of the parts beside it are compared; if there are none, the day is read
// once.
//
// The files have no names, lie in the system's folder for temporary files, and take entrySize bytes a line. If there is no such folder,
// or no space in it, the day is read once for each share instead: that takes longer, but a full disk hides no day.

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
	rankDuplicate             // of several the first holds
)

func rankOf(r *wire.Record) rank {
	switch {
	case r.State == wire.StateDuplicate:
		return rankDuplicate
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

// comparison is the comparison of one share of the identities.
type comparison struct {
	*dayFiles
	// first is the first part: 1 where a compacted day comes before it.
	first int
	seed  maphash.Seed

	mu   sync.Mutex
	held map[IDHash]standing
}

// compare finds out which lines of a large day hold.
func (d *dayFiles) compare(ctx context.Context) error {
	c := &comparison{dayFiles: d, seed: maphash.MakeSeed()}
	if name, err := wire.ParseManifestKey(d.keys[0]); err == nil && name.Compacted {
		c.first = 1
	}
	inParts := 0
	for _, lines := range d.lines[c.first:] {
		inParts += lines
	}
	shares := (inParts + maxHeld - 1) / maxHeld
	if shares > 1 {
		c.begin()
		if err := c.split(ctx, shares); !errors.Is(err, errScratch) {
			return err
		}
	}
	c.begin()
	for share := range shares {
		err := c.lines(ctx, func(e entry) error {
			if e.share(shares) == share {
				c.line(e)
			}
			return nil
		})
		if err != nil {
			return err
		}
		c.end()
	}
	return nil
}

// begin forgets what was found out.
func (c *comparison) begin() {
	files := len(c.keys)
	c.large = &large{make([]bits, files), make([]bits, files), make([]bits, files)}
	c.held = map[IDHash]standing{}
}

// split compares the shares by scratch files. Errors: errScratch, those of the store.
func (c *comparison) split(ctx context.Context, shares int) error {
	all := make([]*share, 0, shares)
	defer func() {
		for _, s := range all {
			_ = s.file.Close()
		}
	}()
	for range shares {
		s, err := newShare()
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	if err := c.lines(ctx, func(e entry) error { return all[e.share(shares)].add(e) }); err != nil {
		return err
	}
	for _, s := range all {
		if err := s.each(c.line); err != nil {
			return err
		}
		c.end()
	}
	return nil
}

// lines calls a function with each line to be compared: with those of several parts at once,
// and with those of the compacted day after them.
func (c *comparison) lines(ctx context.Context, do func(entry) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(fetches)
	for number := c.first; number < len(c.keys); number++ {
		group.Go(func() error { return c.linesOf(groupCtx, number, do) })
	}
	err := group.Wait()
	if err == nil && c.first > 0 {
		err = c.linesOf(ctx, 0, do)
	}
	return err
}

func (c *comparison) linesOf(ctx context.Context, number int, do func(entry) error) error {
	line := 0
	for r, err := range c.file(ctx, c.keys[number]) {
		if err != nil {
			return err
		}
		where := maphash.Comparable(c.seed, lies{r.Key, r.Offset, r.Length})
		if err := do(entry{HashID(r.ID), placeOf(number, line), where, rankOf(&r)}); err != nil {
			return err
		}
		line++
	}
	return nil
}

// line compares a line. Lines of the compacted day count only if the parts list their objects.
func (c *comparison) line(e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := standing{e.at, e.at, e.lies, e.lies, e.rank}
	before, again := c.held[e.id]
	if !again {
		if int(e.at>>32) >= c.first {
			c.held[e.id] = current
		}
		return
	}
	best, other := before, current
	if current.beats(&before) {
		best, other = current, before
	}
	c.set(c.large.skip, other.holds)
	if best.first > other.first {
		best.first, best.firstLies = other.first, other.firstLies
	}
	c.held[e.id] = best
}

// end notes which of the objects that were changed do not lie where the line says that holds, and continues with the next share.
func (c *comparison) end() {
	for _, s := range c.held {
		if (s.rank == rankChanged || s.rank == rankPurged) && s.first < s.holds && s.firstLies != s.holdLies {
			c.set(c.large.remember, s.first)
			c.set(c.large.moved, s.holds)
		}
	}
	c.held = map[IDHash]standing{}
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
