// SPDX-License-Identifier: Apache-2.0

package objectpath

import (
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/wire"
)

// Instrument is what its paths are made from.
type Instrument struct {
	Name, Station string
	// Naming is nil where objects are published under their keys.
	Naming  *naming.Template
	Aliases []*naming.Template
}

// OfEntry reads what the registry says. Errors: naming.ErrTemplate.
func OfEntry(e wire.InstrumentEntry) (Instrument, error) {
	in := Instrument{Name: e.Instrument, Station: e.Station}
	var err error
	if e.Naming != "" {
		if in.Naming, err = naming.Parse(e.Naming); err != nil {
			return Instrument{}, fmt.Errorf("instrument %s: naming: %w", e.Instrument, err)
		}
	}
	for _, text := range e.Aliases {
		alias, err := naming.Parse(text)
		if err != nil {
			return Instrument{}, fmt.Errorf("instrument %s: alias: %w", e.Instrument, err)
		}
		in.Aliases = append(in.Aliases, alias)
	}
	return in, nil
}

// Candidate says where the object of a path can be, if there is one: under the key
// of a name, or in the manifest of a day.
type Candidate struct {
	Instrument string
	// Template is what reads the path.
	Template string
	// Name of an object, whose key follows from it; empty where it is to be looked
	// for in Day.
	Name string
	Day  wire.Day
	// Newest: of several objects the one that was received last has the path, for
	// they are versions of one name; else that which was received first.
	Newest bool
	// Matches says whether an object has the path. It is quick for those that are of
	// another time: a day may have one each second.
	Matches func(*wire.Record) bool
}

// Candidates returns where to look for the object that is published under a path, or has it as an alias, the likeliest first. It sends no
// request.
func Candidates(path string, instruments []Instrument) []Candidate {
	if wire.CheckName(path) != nil || len(path) > wire.MaxKey {
		return nil
	}
	var all []Candidate
	for _, in := range instruments {
		published := func(r *wire.Record, _ naming.Values) bool { return r.Path == path }
		base, _ := Untold(path)
		all = append(all, in.candidates(in.Naming, path, true, published)...)
		if base != path {
			all = append(all, in.candidates(in.Naming, base, true, published)...)
		}
	}
	for _, in := range instruments {
		for _, alias := range in.Aliases {
			all = append(all, in.candidates(alias, path, alias.Has("name"), func(r *wire.Record, v naming.Values) bool {
				return isOf(r, alias, v.Time) && Path(alias, in.Name, in.Station, *r, 0) == path
			})...)
		}
	}
	return all
}

// isOf says whether an object is of a time that a template's path tells, if it tells one.
func isOf(r *wire.Record, t *naming.Template, at time.Time) bool {
	of := timeOf(t, r)
	return !t.HasTime() || !of.Before(at) && of.Before(at.Add(t.Resolution()))
}

// candidates of one template: matches is given what the path tells.
func (in Instrument) candidates(t *naming.Template, path string, newest bool, matches func(*wire.Record, naming.Values) bool) []Candidate {
	if t == nil {
		return nil
	}
	v, err := t.Read(path)
	if err != nil || t.Has("instrument") && v.Instrument != in.Name || t.Has("station") && v.Station != in.Station {
		return nil
	}
	has := func(r *wire.Record) bool { return matches(r, v) }
	var all []Candidate
	if v.Name != "" && wire.CheckName(v.Name) == nil {
		all = append(all, Candidate{Instrument: in.Name, Template: t.String(), Name: v.Name, Newest: true, Matches: has})
	}
	if t.HasTime() {
		for _, day := range listedOn(v.Time) {
			all = append(all, Candidate{Instrument: in.Name, Template: t.String(), Day: day, Newest: newest, Matches: has})
		}
	}
	return all
}
