// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/descriptions"
	"github.com/substorm/substorm/internal/wire"
)

// told is what is published about a dataset as a whole, see section 3.6.2 of the specification.
type told struct {
	Description string        `json:"description,omitempty"`
	UnitsSchema string        `json:"unitsSchema,omitempty"`
	GeoLocation []json.Number `json:"geoLocation,omitempty"`
	Contact     string        `json:"contact,omitempty"`
	// ResourceID is what the DOI of the data resolves through.
	ResourceID      string `json:"resourceID,omitempty"`
	DatasetCitation string `json:"datasetCitation,omitempty"`
	LicenseURL      string `json:"licenseURL,omitempty"`
	// Credit is what to show beside the data, License a license that has no URL.
	Credit  string `json:"x_credit,omitempty"`
	License string `json:"x_license,omitempty"`
}

// generation is how a dataset was described for a while, as far as that differs from the
// description beside it: a differing member is null if it was not stated.
type generation struct {
	// Generation of the Instrument, from From up to To; the last has none.
	Generation int64
	From, To   time.Time
	// Differs are the members of told, and parameters, that differ.
	Differs map[string]any
}

// MarshalJSON writes one flat object.
func (g generation) MarshalJSON() ([]byte, error) {
	all := maps.Clone(g.Differs)
	all["generation"], all["from"] = g.Generation, spellMoment(g.From)
	if !g.To.IsZero() {
		all["to"] = spellMoment(g.To)
	}
	return json.Marshal(all)
}

func spellMoment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// said is what a generation of an Instrument says of a dataset. How payloads are read
// is not part of it: that is always as declared now.
type said struct {
	about   *wire.AboutEntry
	rights  *wire.RightsEntry
	channel *wire.ChannelEntry
}

// describedNow is what is said now.
func (d *dataset) describedNow() said {
	return said{d.instrument.About, d.instrument.Rights, &d.channel}
}

// describedBy is what a description says. A channel that was not declared then is described as
// it is now.
func (d *dataset) describedBy(g *wire.Description) said {
	is := said{g.About, g.Rights, &d.channel}
	for i := range g.Channels {
		if g.Channels[i].Name == d.channel.Name {
			is.channel = &g.Channels[i]
		}
	}
	return is
}

// told returns what is published about the dataset as a whole.
func (s said) told() told {
	t := told{Description: s.channel.Description, UnitsSchema: s.channel.UnitsSchema, ResourceID: s.rights.CiteURL(), LicenseURL: s.rights.LicenseURL()}
	if s.rights != nil {
		t.DatasetCitation, t.Credit = s.rights.Citation, s.rights.Credit
		if t.LicenseURL == "" {
			t.License = s.rights.License
		}
	}
	if s.about == nil {
		return t
	}
	t.Contact = s.about.Contact
	if s.about.Latitude != "" && s.about.Longitude != "" {
		t.GeoLocation = []json.Number{json.Number(s.about.Longitude), json.Number(s.about.Latitude)}
		if s.about.AltitudeMeters != nil {
			t.GeoLocation = append(t.GeoLocation, json.Number(strconv.Itoa(int(*s.about.AltitudeMeters))))
		}
	}
	return t
}

// parameter returns the description of a parameter, or the current one if it had none of its name.
func (s said) parameter(p decode.Parameter) (units *string, description string) {
	text, description := p.Units, p.Description
	for i := range s.channel.Parameters {
		if was := &s.channel.Parameters[i]; was.Name == p.Name {
			text, description = was.Units, was.Description
		}
	}
	if text != "" {
		units = &text
	}
	return units, description
}

// describeSpan describes what a request for data asks for: as it was described at its
// start, beside what was said later of it.
func (d *dataset) describeSpan(s span, chosen []int, q question) info {
	from, to := time.Unix(0, q.from), time.Unix(0, q.to)
	first, ok := descriptions.At(d.generations, from)
	if !ok {
		return d.describe(s, chosen, d.describedNow(), nil)
	}
	later := d.generations[slices.IndexFunc(d.generations, func(g wire.Description) bool { return g.From.Equal(first.From) }):]
	if end := slices.IndexFunc(later, func(g wire.Description) bool { return g.From.After(first.From) && !g.From.Before(to) }); end >= 0 {
		later = later[:end]
	}
	if len(later) == 1 {
		later = nil // the header says it all
	}
	return d.describe(s, chosen, d.describedBy(&first), later)
}

// differ returns the generations with their differences from is. Consecutive ones with the same
// description of the dataset are merged.
func (d *dataset) differ(current said, chosen []int, generations []wire.Description) []generation {
	parameters := pick(d.decoder.Parameters(), chosen)
	base := members(current.told())
	var all []generation
	var last []byte
	for i := range generations {
		g := &generations[i]
		earlier := d.describedBy(g)
		differs := map[string]any{}
		then := members(earlier.told())
		for name := range base {
			if then[name] == nil {
				differs[name] = nil
			}
		}
		for name, value := range then {
			if !bytes.Equal(base[name], value) {
				differs[name] = value
			}
		}
		if p := differParameters(current, earlier, parameters); p != nil {
			differs["parameters"] = p
		}
		same, err := json.Marshal(differs)
		if err == nil && len(all) > 0 && bytes.Equal(same, last) {
			continue
		}
		if len(all) > 0 {
			all[len(all)-1].To = g.From
		}
		all, last = append(all, generation{Generation: g.Generation, From: g.From, Differs: differs}), same
	}
	return all
}

// members are the members of told that are not empty.
func members(t told) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	if data, err := json.Marshal(t); err == nil {
		_ = json.Unmarshal(data, &all) // it was just written
	}
	return all
}

// measured is what is said of a parameter.
type measured struct {
	Name        string  `json:"name"`
	Units       *string `json:"units"`
	Description string  `json:"description,omitempty"`
}

func differParameters(current, earlier said, parameters []decode.Parameter) []measured {
	var all []measured
	for _, p := range parameters {
		units, description := current.parameter(p)
		thenUnits, then := earlier.parameter(p)
		if description != then || (units == nil) != (thenUnits == nil) || units != nil && *units != *thenUnits {
			all = append(all, measured{p.Name, thenUnits, then})
		}
	}
	return all
}
