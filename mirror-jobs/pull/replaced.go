// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"log/slog"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
)

// A mirror in a folder keeps the newest version of a name: its file takes the place of the one before, which the other side lists as
// superseded. A file that it does not list so may be the last copy, and is set aside. The list of the earlier version's day may come later
// than the newer version, or a killed run may have noted it: so the other side is asked about each file that was set aside, and the file
// goes if it lists that as superseded. It also goes once a later run finds it listed so.

// copyOf is a copy of an object, by its instrument, path and digest.
type copyOf struct {
	instrument, path string
	digest           wire.Digest
}

// supersededOf returns the copies that a list says are superseded.
func supersededOf(instrument string, list []mirrorindex.Entry) map[copyOf]bool {
	all := map[copyOf]bool{}
	for i := range list {
		if e := &list[i]; e.Is() == wire.StateSuperseded {
			all[copyOf{instrument, e.Path, e.Digest}] = true
		}
	}
	return all
}

// noteReplaced notes which copies of a day are superseded, as the list says that came of it. Their files go that were set aside. The day's
// lines are those before.
func (p *run) noteReplaced(d *day, list []mirrorindex.Entry) error {
	superseded := supersededOf(d.in.Instrument, list)
	for i := range d.lines {
		l := &d.lines[i]
		is := copyOf{d.in.Instrument, l.Path, l.Digest}
		if !l.Held || !superseded[is] {
			continue
		}
		if err := p.Folder.RemoveAside(is.instrument, is.path, is.digest); err != nil {
			return err
		}
		p.mu.Lock()
		p.replaced[is] = true
		p.mu.Unlock()
	}
	return nil
}

// noteLast notes the copies of a day that the other side does not give any more, and whose path another object of the day has.
func (p *run) noteLast(d *day) {
	last := map[string][]wire.Digest{}
	for i := range d.lines {
		if l := &d.lines[i]; l.Held && !l.Lost && isGivenNoMore(l) {
			last[l.Path] = append(last[l.Path], l.Digest)
		}
	}
	for i := range d.lines {
		l := &d.lines[i]
		if isGivenNoMore(l) {
			continue
		}
		for _, digest := range last[l.Path] {
			p.mu.Lock()
			p.last[copyOf{d.in.Instrument, l.Path, digest}] = true
			p.mu.Unlock()
		}
	}
}

// setAside is a file that was set aside, of an instrument.
type setAside struct {
	instrument string
	*folder.Aside
}

// setAside gives the file that has the path of an object that came another name, unless it is of an earlier version.
func (p *run) setAside(instrument string, e *mirrorindex.Entry) (*setAside, error) {
	in := func(copies map[copyOf]bool) folder.Knows {
		return func(path string, digest wire.Digest) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return copies[copyOf{instrument, path, digest}]
		}
	}
	file, err := p.Folder.SetAside(instrument, e, in(p.replaced), in(p.last))
	if file == nil || err != nil {
		return nil, err
	}
	return &setAside{instrument, file}, nil
}

// settleAside removes those of some files that the other side lists as superseded by now.
func (p *run) settleAside(ctx context.Context, files []setAside) error {
	type dayOf struct {
		instrument string
		day        wire.Day
	}
	byDay := map[dayOf][]setAside{}
	for _, file := range files {
		of := dayOf{file.instrument, wire.DayOf(file.ReceivedAt)}
		byDay[of] = append(byDay[of], file)
	}
	for of, files := range byDay {
		answers, err := p.Source.Lists(ctx, []mirrorindex.ListQuestion{{Instrument: of.instrument, Day: of.day}})
		if err != nil {
			return err
		}
		superseded := supersededOf(of.instrument, answers[0].Entries)
		for _, file := range files {
			if superseded[copyOf{of.instrument, file.Of, file.Digest}] {
				if err := p.Folder.RemoveAside(of.instrument, file.Of, file.Digest); err != nil {
					return err
				}
				continue
			}
			p.log.Add(slog.LevelWarn, "renaming files in the place of a pulled object, or of a folder of it, that are not an earlier version that the other side has",
				"instrument", of.instrument, "path", file.Of, "file", file.Path)
		}
	}
	return nil
}
