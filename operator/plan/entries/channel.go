// SPDX-License-Identifier: Apache-2.0

package entries

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// separators are the characters between two columns; a blank means any number of blanks and tabs.
var separators = map[v1alpha1.Separator]string{
	v1alpha1.SeparatorComma: ",", v1alpha1.SeparatorSemicolon: ";", v1alpha1.SeparatorTab: "\t", v1alpha1.SeparatorBlanks: " ",
}

// unitsSchemas are the conventions of units as HAPI calls them.
var unitsSchemas = map[v1alpha1.UnitsSchema]string{
	v1alpha1.UnitsUDUNITS2: "udunits2", v1alpha1.UnitsAstropy3: "astropy3", v1alpha1.UnitsCDFCluster: "cdf-cluster",
}

// channelEntries are an Instrument's channels as programs know them.
func channelEntries(channels []v1alpha1.Channel) []wire.ChannelEntry {
	var entries []wire.ChannelEntry
	for i := range channels {
		c := channels[i].WithDefaults()
		entry := wire.ChannelEntry{
			Name: c.Name, Description: c.Description, Payload: payloadEntry(&c.Payload), Time: timeEntry(&c.Time),
			UnitsSchema: unitsSchemas[c.UnitsSchema], Parameters: make([]wire.ParameterEntry, len(c.Parameters)),
		}
		if c.Cadence != nil {
			entry.CadenceMillis = c.Cadence.Milliseconds()
		}
		if c.Source.Datagrams != nil {
			entry.Datagrams = c.Source.Datagrams.Channel
		}
		if c.Source.Objects != nil {
			entry.Suffix = c.Source.Objects.NameSuffix
		}
		for j := range c.Parameters {
			entry.Parameters[j] = parameterEntry(&c.Parameters[j])
		}
		entries = append(entries, entry)
	}
	return entries
}

func payloadEntry(p *v1alpha1.Payload) wire.PayloadEntry {
	entry := wire.PayloadEntry{Type: string(p.Type)}
	if p.Type == v1alpha1.PayloadOASIS {
		entry.ByteOrder = wire.LittleEndian
	}
	switch {
	case p.CSV != nil:
		entry.Separator, entry.Comment, entry.SkipLines = separators[p.CSV.Separator], *p.CSV.Comment, int(p.CSV.SkipLines)
		entry.DecimalComma = p.CSV.DecimalMark == v1alpha1.DecimalComma
	case p.JSON != nil:
		entry.Records = p.JSON.Records
	case p.Binary != nil:
		entry.ByteOrder, entry.Header, entry.Record = string(p.Binary.ByteOrder), int(p.Binary.HeaderBytes), number(p.Binary.RecordBytes)
	case p.IAGA2002 != nil:
		entry.Reported = p.IAGA2002.Reported
	case p.OASIS != nil:
		entry.Probe = p.OASIS.Probe
	}
	return entry
}

// timeEntry says when a channel's samples were observed.
func timeEntry(t *v1alpha1.ChannelTime) wire.ChannelTimeEntry {
	entry := wire.ChannelTimeEntry{Source: string(t.Source), Precision: string(t.Precision), Location: strings.ToLower(string(t.Location))}
	if t.Source == v1alpha1.ChannelTimePayload {
		entry.MaxDelayMillis = t.MaxDelay.Milliseconds()
	}
	p := t.Payload
	if p == nil {
		return entry
	}
	entry.Format = string(p.Format)
	switch {
	case p.CSV != nil:
		entry.Columns = numbers(p.CSV.Columns)
	case p.JSON != nil:
		entry.Path = p.JSON.Path
	case p.Binary != nil:
		entry.Offset, entry.Encoding = number(p.Binary.Offset), string(p.Binary.Encoding)
	}
	return entry
}

func parameterEntry(p *v1alpha1.Parameter) wire.ParameterEntry {
	entry := wire.ParameterEntry{
		Name: p.Name, Description: p.Description, Units: p.Units, Type: string(p.Type),
		Length: number(p.Length), Size: numbers(p.Size), Fill: p.Fill,
	}
	switch binary := cmp.Or(p.Binary, p.OASIS); {
	case p.CSV != nil:
		entry.Column = int(p.CSV.Column)
	case p.JSON != nil:
		entry.Path = p.JSON.Path
	case p.IAGA2002 != nil:
		entry.Components = p.IAGA2002.Components
	case binary != nil:
		entry.Offset, entry.Encoding = number(binary.Offset), string(binary.Encoding)
	}
	return entry
}

// number returns the value of n, 0 for nil.
func number(n *int32) int {
	if n == nil {
		return 0
	}
	return int(*n)
}

func numbers(all []int32) []int {
	var out []int
	for _, n := range all {
		out = append(out, int(n))
	}
	return out
}

// aboutEntry is the information that readers see with an Instrument's data.
func aboutEntry(spec *v1alpha1.InstrumentSpec) *wire.AboutEntry {
	about := &wire.AboutEntry{Type: spec.Type}
	if l := spec.Location; l != nil {
		about.Latitude, about.Longitude, about.AltitudeMeters = l.Latitude, l.Longitude, l.AltitudeMeters
	}
	if len(spec.Contacts) > 0 {
		c := spec.Contacts[0]
		about.Contact = c.Name
		if c.Email != "" {
			about.Contact = fmt.Sprintf("%s <%s>", c.Name, c.Email)
		}
	}
	return about
}
