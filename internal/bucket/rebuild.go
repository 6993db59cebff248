// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Difference says how a manifest and the bucket by itself do not agree on an object.
type Difference struct {
	List
	Kind DifferenceKind
	// Record as the manifest has it; of what it does not list, ID and state alone.
	wire.Record
	// Bucket is what the bucket says, where both say something.
	Bucket *wire.Record
}

// DifferenceKind is what a Difference is about.
type DifferenceKind string

// The values of DifferenceKind. Unlisted: the manifests do not list what is stored.
// Missing: nothing in the bucket bears out what is listed. Moved: the bytes are
// elsewhere than listed. Untold: state, path or other words of the manifest are
// written down nowhere else. Unreadable: a file of the manifest, or of changes, cannot
// be read. Foreign: what lies under a key of ours and is none of ours; readers pass it over.
const (
	Unlisted   DifferenceKind = "Unlisted"
	Missing    DifferenceKind = "Missing"
	Moved      DifferenceKind = "Moved"
	Untold     DifferenceKind = "Untold"
	Unreadable DifferenceKind = "Unreadable"
	Foreign    DifferenceKind = "Foreign"
)

// Plan is what is known of a list's manifest and bucket together.
type Plan struct {
	List
	Differences []Difference
	// Counts of what the manifest lists and what the bucket says, duplicates included.
	Listed, Said int

	files  files
	merged *Merged
	moved  map[manifest.IDHash]bool
	// changed are the objects for which changes hold, and not the lines that can be read.
	changed map[manifest.IDHash]bool
	known   map[manifest.IDHash]bool
	packs   map[string]int64 // sizes of those that were asked for; negative: not there
}

// Compare compares a list's manifest with what the bucket says. The merged day
// belongs to the plan from then on. Errors: those of objectstore, wire.ErrNewerFormat.
func Compare(ctx context.Context, store objectstore.Store, site string, m *Merged) (*Plan, error) {
	p := &Plan{List: m.List, merged: m, moved: map[manifest.IDHash]bool{}, changed: map[manifest.IDHash]bool{}, known: map[manifest.IDHash]bool{},
		packs: map[string]int64{}}
	var err error
	if p.files, err = readable(ctx, store, site, m.List); err != nil {
		return nil, err
	}
	for _, key := range slices.Concat(p.files.unreadable, m.Unreadable) {
		p.addDifference(Unreadable, wire.Record{ID: key}, nil)
	}
	for _, key := range slices.Concat(p.files.foreign, m.Foreign) {
		p.addDifference(Foreign, wire.Record{ID: key}, nil)
	}
	for r, err := range p.files.records(ctx, store) {
		if err == nil {
			err = p.compare(ctx, store, r)
		}
		if err != nil {
			return nil, err
		}
	}
	for l, err := range m.All() {
		if err != nil {
			return nil, err
		}
		p.Said++
		if !l.Young && !p.known[manifest.HashID(l.ID)] {
			p.addDifference(Unlisted, wire.Record{ID: l.ID, State: l.State}, nil)
		}
	}
	return p, nil
}

// Records yields what the manifest lists, as far as it can be read, duplicates included.
func (p *Plan) Records(ctx context.Context, store objectstore.Store) iter.Seq2[wire.Record, error] {
	return p.files.records(ctx, store)
}

// Close ends the plan and its merged day.
func (p *Plan) Close() { p.merged.Close() }

func (p *Plan) addDifference(kind DifferenceKind, listed wire.Record, said *wire.Record) {
	p.Differences = append(p.Differences, Difference{List: p.List, Kind: kind, Record: listed, Bucket: said})
}

func (p *Plan) compare(ctx context.Context, store objectstore.Store, r wire.Record) error {
	p.Listed++
	id := manifest.HashID(r.ID)
	p.known[id] = true
	said, found, err := p.merged.Get(r.ID)
	switch {
	case err != nil:
		return err
	case !Holds(r) && !found:
		p.addDifference(Untold, r, nil)
		return nil
	case !Holds(r):
		p.disagree(r, said.Record)
		return nil
	case !found || said.Missing:
		there, err := p.isThere(ctx, store, r)
		if err == nil && !there {
			p.addDifference(Missing, r, nil)
		} else if err == nil && !found && !wire.IsOurs(r.Key) {
			p.addDifference(Untold, r, nil)
		}
		return err // one of ours that is there was stored since the scan
	}
	if !p.merged.Holds(r) {
		there, err := p.isThere(ctx, store, r) // it may have moved there since the scan
		if err != nil {
			return err
		}
		if !there {
			p.moved[id] = true
			p.addDifference(Moved, r, &said.Record)
		}
	}
	p.disagree(r, said.Record)
	return nil
}

// disagree compares a line with what the bucket says. If files of the manifest cannot be
// read, a line that the changes tell of counts as one of theirs.
func (p *Plan) disagree(r, said wire.Record) {
	if alike(r, said) {
		return
	}
	if _, changed := p.merged.changes[r.ID]; changed && len(p.files.unreadable) > 0 {
		p.changed[manifest.HashID(r.ID)] = true
		return
	}
	p.addDifference(Untold, r, &said)
}

// isThere asks the store whether it has the bytes where a record says.
func (p *Plan) isThere(ctx context.Context, store objectstore.Store, r wire.Record) (bool, error) {
	size, asked := p.packs[r.Key]
	if !asked {
		info, err := store.Head(ctx, r.Key)
		switch {
		case errors.Is(err, objectstore.ErrNotFound):
			size = -1
		case err != nil:
			return false, err
		default:
			size = info.Size
		}
		if r.InPack() {
			p.packs[r.Key] = size
		}
	}
	if r.InPack() {
		return size >= r.Offset+r.Length, nil
	}
	return size == r.Size, nil
}

// alike says whether two records say the same but for the place of the bytes.
func alike(a, b wire.Record) bool {
	a.Key, a.Offset, a.Length = "", 0, 0
	b.Key, b.Offset, b.Length = "", 0, 0
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// Changes reports whether the manifest would be different: objects that it does not list,
// places that are not those of the bytes, or files that cannot be read. If changes cannot
// be read, it stays as it is: the objects that they retracted would be there again.
func (p *Plan) Changes() bool {
	return len(p.merged.Unreadable) == 0 && slices.ContainsFunc(p.Differences, func(d Difference) bool {
		return d.Kind == Unlisted || d.Kind == Moved || d.Kind == Unreadable
	})
}

// Apply writes a version of the day that lists everything: what the manifest lists,
// with the places where the bytes are, and then what the bucket has besides. Nothing
// that is listed is taken away; where a file cannot be read, what the changes say of objects
// that others list holds. Errors: manifest.ErrFenced, those of objectstore.
func (p *Plan) Apply(ctx context.Context, store objectstore.Store, h wire.ManifestHeader, scratch string, version int) error {
	h.Instrument, h.Day = p.Instrument, p.Day
	h.Replaces, h.NextPart = p.files.parts, max(p.files.nextPart, p.merged.LastPart+1)
	v, err := manifest.NewVersion(scratch, h, max(version, p.files.nextVersion))
	if err != nil {
		return err
	}
	defer v.Discard()
	for r, err := range p.result(ctx, store) {
		if err == nil {
			err = v.Add(r)
		}
		if err != nil {
			return err
		}
	}
	return v.Store(ctx, store, func() error { return nil })
}

func (p *Plan) result(ctx context.Context, store objectstore.Store) iter.Seq2[wire.Record, error] {
	return func(yield func(wire.Record, error) bool) {
		for r, err := range p.files.records(ctx, store) {
			if id := manifest.HashID(r.ID); err == nil && (p.moved[id] || p.changed[id]) {
				var said Line
				said, _, err = p.merged.Get(r.ID)
				if p.changed[id] {
					r = said.Record
				}
				r.Key, r.Offset, r.Length = said.Key, said.Offset, said.Length
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
		for l, err := range p.merged.All() {
			if err == nil && (l.Young || p.known[manifest.HashID(l.ID)]) {
				continue
			}
			if !yield(l.Record, err) || err != nil {
				return
			}
		}
	}
}

// Tell writes down as changes what the manifest alone says. Errors: those of objectstore.
func (p *Plan) Tell(ctx context.Context, store objectstore.Store, h wire.ManifestHeader) (int, error) {
	h.Instrument, h.Day = p.Instrument, p.Day
	var records []wire.Record
	for _, d := range p.Differences {
		if d.Kind == Untold || d.Kind == Missing {
			records = append(records, d.Record)
		}
	}
	return len(records), manifest.PutChanges(ctx, store, h, max(p.files.nextPart, p.merged.LastPart+1), records)
}
