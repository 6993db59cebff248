// SPDX-License-Identifier: Apache-2.0

package tree

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

// Candidate says where the object of a path can be, if there is one: under a key,
// or in the manifest of a day.
type Candidate struct {
	Instrument string
	// Key of a named object; empty where it is to be looked for in Day.
	Key string
	Day wire.Day
	// Matches says whether an object has the path.
	Matches func(wire.Record) bool
}

// Candidates returns where to look for the object that is published under a path,
// or has it as an alias, the likeliest first. It asks nobody.
func Candidates(site, path string, instruments []Instrument) []Candidate {
	if wire.CheckName(path) != nil || len(path) > wire.MaxKey {
		return nil
	}
	var all []Candidate
	for _, in := range instruments {
		published := func(r wire.Record) bool { return r.Path == path }
		base, _ := Untold(path)
		all = append(all, in.candidates(site, in.Naming, path, published)...)
		if base != path {
			all = append(all, in.candidates(site, in.Naming, base, published)...)
		}
	}
	for _, in := range instruments {
		for _, alias := range in.Aliases {
			all = append(all, in.candidates(site, alias, path, func(r wire.Record) bool {
				return Path(alias, in.Name, in.Station, r, 0) == path
			})...)
		}
	}
	return all
}

// candidates of one template. An object whose name told its time may be received,
// and listed, a day later.
func (in Instrument) candidates(site string, t *naming.Template, path string, matches func(wire.Record) bool) []Candidate {
	if t == nil {
		return nil
	}
	v, err := t.Read(path)
	if err != nil || t.Has("instrument") && v.Instrument != in.Name || t.Has("station") && v.Station != in.Station {
		return nil
	}
	var all []Candidate
	if v.Name != "" && wire.CheckName(v.Name) == nil {
		all = append(all, Candidate{Instrument: in.Name, Key: wire.NamedKey(site, in.Name, v.Name, 1), Matches: matches})
	}
	if t.HasTime() {
		for _, day := range []wire.Day{wire.DayOf(v.Time), wire.DayOf(v.Time.Add(24 * time.Hour))} {
			all = append(all, Candidate{Instrument: in.Name, Day: day, Matches: matches})
		}
	}
	return all
}
