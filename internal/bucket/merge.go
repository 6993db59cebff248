// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Line is what the bucket says of an object by itself.
type Line struct {
	wire.Record
	// Missing: changes tell of the object, and its bytes are not there. Young: it was
	// stored so recently that its manifest may not be written yet.
	Missing, Young bool
}

// Merged is what the bucket says of an instrument's day, each object once.
type Merged struct {
	List
	// LastPart is the greatest part of the manifest that changes are of.
	LastPart int
	// Foreign and Unreadable are keys among the changes, see manifest.Changes.
	Foreign, Unreadable []string

	file       *os.File
	best       map[manifest.IDHash]place
	spots      map[manifest.IDHash]struct{} // all places, also those that do not hold
	changes    map[string]wire.Record
	superseded map[manifest.IDHash]bool
	inPlace    map[string]bool // of imported objects that are there
}

// place is where a line of the scratch file says of an object's bytes.
type place struct {
	offset, length       int64
	rank                 int
	storedAt, receivedAt int64
	young                bool
}

// spot stands for an object and a place where its bytes lie.
func spot(r wire.Record) manifest.IDHash {
	return manifest.HashID(fmt.Sprintf("%s\n%s\n%d", r.ID, r.Key, r.Offset))
}

// Merge brings together what was found of a list and its changes. An object is young if
// it was stored at or after a time (zero: none) and no change tells of it. Errors: those
// of manifest.ReadChanges, and of the scratch folder.
func (f *Found) Merge(ctx context.Context, of List, before time.Time) (*Merged, error) {
	changes, err := manifest.ReadChanges(ctx, f.cfg.Store, f.cfg.Site, of.Instrument, of.Day)
	if err != nil {
		return nil, err
	}
	m := &Merged{List: of, LastPart: changes.LastPart, Foreign: changes.Foreign, Unreadable: changes.Unreadable, best: map[manifest.IDHash]place{}, spots: map[manifest.IDHash]struct{}{},
		changes: changes.Records, superseded: f.superseded[of.Instrument], inPlace: map[string]bool{}}
	if m.file, err = f.open(of); err != nil {
		return nil, err
	}
	if m.file != nil {
		if err := m.read(before); err != nil {
			m.Close()
			return nil, err
		}
	}
	if err := m.findInPlace(ctx, f.cfg.Store); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close ends it.
func (m *Merged) Close() {
	if m.file != nil {
		_ = m.file.Close()
	}
}

func (m *Merged) read(before time.Time) error {
	var last struct {
		id     manifest.IDHash
		offset int64
		set    bool
	}
	end := func(offset int64) {
		if p, ok := m.best[last.id]; last.set && ok && p.offset == last.offset {
			p.length = offset - last.offset
			m.best[last.id] = p
		}
	}
	err := eachLine(m.file, func(offset int64, l line) error {
		end(offset)
		id := manifest.HashID(l.ID)
		last.id, last.offset, last.set = id, offset, true
		p := place{offset: offset, rank: l.Rank, storedAt: l.StoredAt, receivedAt: l.ReceivedAt.UnixNano()}
		known, again := m.best[id]
		_, changed := m.changes[l.ID]
		young := !changed && !before.IsZero() && l.StoredAt >= before.UnixNano() && (!again || known.young)
		m.spots[spot(l.Record)] = struct{}{}
		if !again || cmp.Or(cmp.Compare(p.rank, known.rank), cmp.Compare(p.storedAt, known.storedAt)) > 0 {
			known = p
		}
		known.young = young
		m.best[id] = known
		return nil
	})
	if err != nil {
		return err
	}
	info, err := m.file.Stat()
	if err == nil {
		end(info.Size())
	}
	return err
}

// findInPlace asks for what was imported where it lies: only changes know of it.
func (m *Merged) findInPlace(ctx context.Context, store objectstore.Store) error {
	for id, r := range m.changes {
		if wire.IsOurs(r.Key) || !Holds(r) {
			continue
		}
		info, err := store.Head(ctx, r.Key)
		if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
			return err
		}
		m.inPlace[id] = err == nil && info.Size == r.Size
	}
	return nil
}

// Get returns what the bucket says of an object.
func (m *Merged) Get(id string) (l Line, found bool, err error) {
	p, stored := m.best[manifest.HashID(id)]
	change, changed := m.changes[id]
	switch {
	case changed && !Holds(change):
		return Line{Record: change}, true, nil
	case changed && !stored:
		return Line{Record: change, Missing: !m.inPlace[id]}, true, nil
	case !stored:
		return Line{}, false, nil
	}
	own, err := lineAt(m.file, p.offset, p.length)
	if err != nil {
		return Line{}, false, err
	}
	return Line{Record: m.applyChanges(own.Record)}, true, nil
}

// applyChanges lays what changes say over what the object says itself.
func (m *Merged) applyChanges(own wire.Record) wire.Record {
	if change, changed := m.changes[own.ID]; changed {
		if Holds(change) {
			change.Key, change.Offset, change.Length = own.Key, own.Offset, own.Length
		}
		return change
	}
	if own.State == wire.StateCurrent && m.superseded[manifest.HashID(own.ID)] {
		own.State = wire.StateSuperseded
	}
	return own
}

// Holds says whether the bucket has an object's bytes where a record says.
func (m *Merged) Holds(r wire.Record) bool {
	_, there := m.spots[spot(r)]
	return there || m.inPlace[r.ID]
}

// All yields everything, in the order of receipt.
func (m *Merged) All() iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		places := slices.SortedFunc(maps.Values(m.best), func(a, b place) int {
			return cmp.Or(cmp.Compare(a.receivedAt, b.receivedAt), cmp.Compare(a.offset, b.offset))
		})
		for _, p := range places {
			l, err := lineAt(m.file, p.offset, p.length)
			if !yield(Line{Record: m.applyChanges(l.Record), Young: p.young}, err) || err != nil {
				return
			}
		}
		var alone []Line
		for id, r := range m.changes {
			if _, stored := m.best[manifest.HashID(id)]; !stored {
				alone = append(alone, Line{Record: r, Missing: Holds(r) && !m.inPlace[id]})
			}
		}
		slices.SortFunc(alone, func(a, b Line) int { return wire.ByReceipt(&a.Record, &b.Record) })
		for _, l := range alone {
			if !yield(l, nil) {
				return
			}
		}
	}
}
