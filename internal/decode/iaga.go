// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/substorm/substorm/internal/wire"
)

// iagaLayout reads IAGA-2002, the exchange format of geomagnetic observatories: a
// header, whose last line names the columns, and lines of date, time, day of the
// year and up to four elements. A payload may also be such lines alone.
type iagaLayout struct {
	d *Decoder
	// reported names the elements of lines without a header.
	reported []string
}

// iagaState is what the payload's header says: the elements' numbers, parameter by
// parameter and value by value, from 0; -1 for one that the payload does not have.
type iagaState struct {
	columns []int
	// elements is how many a line has; 0 where that is not known.
	elements int
	// spare is a line as its columns are.
	spare [][]byte
}

// maxElements is how many elements a line may have. The format has four.
const maxElements = 16

func newIAGA(d *Decoder) (layout, error) {
	l := &iagaLayout{d: d}
	for _, letter := range d.entry.Payload.Reported {
		l.reported = append(l.reported, string(letter))
	}
	if d.entry.Time.Source != wire.TimePayload {
		return nil, fmt.Errorf("lines of IAGA-2002 carry their time: the source of times must be %s", wire.TimePayload)
	}
	for _, p := range d.parameters {
		if len(p.Components) != p.Count {
			return nil, fmt.Errorf("parameter %s: %d components for %d values", p.Name, len(p.Components), p.Count)
		}
		if slices.Contains(p.Components, "") {
			return nil, fmt.Errorf("parameter %s: a component without a name", p.Name)
		}
	}
	return lines{lined: l, isWhole: l.isWhole}, nil
}

func (l *iagaLayout) begin(r *run) {
	s, ok := r.state.(*iagaState)
	if !ok {
		s = &iagaState{}
		r.state = s
	}
	s.find(l.d, l.reported)
}

// find looks where the elements of all parameters stand: by all of their name, as
// BOUH, or else by its last letter.
func (s *iagaState) find(d *Decoder, names []string) {
	s.columns, s.elements = s.columns[:0], len(names)
	for i := range d.parameters {
		for _, component := range d.parameters[i].Components {
			column := slices.Index(names, component)
			if column < 0 && len(component) == 1 {
				column = slices.IndexFunc(names, func(name string) bool { return name != "" && name[len(name)-1] == component[0] })
			}
			s.columns = append(s.columns, column)
		}
	}
}

var iagaColumns, iagaEnd = []byte("DATE"), []byte("|")

// The columns before the elements: date, time and day of the year.
const iagaFirst = 3

func (l *iagaLayout) line(r *run, number int, line []byte) bool {
	s := r.state.(*iagaState)
	trimmed := bytes.TrimSpace(line)
	switch {
	case len(trimmed) == 0:
		return true
	case bytes.HasPrefix(trimmed, iagaColumns):
		l.header(r, s, trimmed)
		return true
	case bytes.HasSuffix(trimmed, iagaEnd): // of a header
		return true
	}
	r.start()
	r.fields = blanks(r.fields[:0], trimmed)
	if len(r.fields) <= iagaFirst || len(r.fields) > iagaFirst+maxElements {
		r.skip("line %d: %d columns instead of a date, a time, a day of the year and elements", number, len(r.fields))
		return true
	}
	t, err := l.time(r)
	if err == nil && len(r.fields) < iagaFirst+s.elements {
		err = s.place(r, trimmed)
	}
	if err == nil {
		err = l.elements(r, s)
	}
	if err != nil {
		r.skip("line %d: %w", number, err)
		return true
	}
	return r.emitTimed(t)
}

// isWhole says whether a line has all of its elements, the last one with its two decimals: nothing was cut off it.
func (l *iagaLayout) isWhole(r *run, line []byte) bool {
	s := r.state.(*iagaState)
	r.fields = blanks(r.fields[:0], bytes.TrimSpace(line))
	if s.elements == 0 || len(r.fields) != iagaFirst+s.elements {
		return false
	}
	_, decimals, _ := bytes.Cut(r.fields[len(r.fields)-1], []byte("."))
	return len(decimals) == 2
}

// header reads the line that names the columns.
func (l *iagaLayout) header(r *run, s *iagaState, line []byte) {
	r.fields = blanks(r.fields[:0], bytes.TrimSuffix(line, iagaEnd))
	names := make([]string, 0, maxElements)
	for i := iagaFirst; i < min(len(r.fields), iagaFirst+maxElements); i++ {
		names = append(names, string(r.fields[i]))
	}
	s.find(l.d, names)
}

// time reads date and time, and compares them with the day of the year.
func (l *iagaLayout) time(r *run) (int64, error) {
	r.spare = append(append(append(r.spare[:0], r.fields[0]...), 'T'), r.fields[1]...)
	t, err := r.dates.observed(r.spare)
	if err != nil {
		return 0, fmt.Errorf("time: %w", err)
	}
	day, _, _, _ := r.dates.read(r.fields[0])
	if doy, ok := parseDigits(r.fields[2]); !ok || doy != day.YearDay() {
		return 0, fmt.Errorf("time: %s is not day %s of the year", r.fields[0], r.fields[2])
	}
	return nanoseconds(t)
}

// The columns of the format: an element ends within each ten characters, at their end.
const iagaElements, iagaWidth = 30, 10

// place puts the elements of a line that has fewer than there are where they stand: one may be blank, and one that fills its
// column has no blank before it. Error: elements do not stand in the columns of the format.
func (s *iagaState) place(r *run, line []byte) error {
	s.spare = append(s.spare[:0], r.fields[:iagaFirst]...)
	for range s.elements {
		s.spare = append(s.spare, nil)
	}
	defer func() { clear(s.spare) }() // they hold the payload's memory
	at := 0
	for i, text := range r.fields {
		at += bytes.Index(line[at:], text) // behind blanks alone
		if i >= iagaFirst && !s.placeText(line, at, at+len(text)) {
			return errElements
		}
		at += len(text)
	}
	r.fields = append(r.fields[:0], s.spare...)
	return nil
}

var errElements = errors.New("elements are missing, and the others are not in the columns of the format")

// placeText puts the text between blanks in its column, or in its columns if none of them has a blank.
func (s *iagaState) placeText(line []byte, from, to int) bool {
	first, last := (from-iagaElements)/iagaWidth, (to-1-iagaElements)/iagaWidth
	if from < iagaElements || first != last && (to-iagaElements)%iagaWidth != 0 || last >= s.elements {
		return false
	}
	for ; first <= last; first++ {
		end := min(to, iagaElements+(first+1)*iagaWidth)
		if s.spare[iagaFirst+first] != nil {
			return false
		}
		s.spare[iagaFirst+first] = line[from:end]
		from = end
	}
	return true
}

// elements sets all values.
func (l *iagaLayout) elements(r *run, s *iagaState) error {
	n := 0
	for i := range l.d.parameters {
		p := &l.d.parameters[i]
		for j := range p.Count {
			var text []byte
			if column := s.columns[n]; column >= 0 {
				text = field(r.fields, iagaFirst+column)
			}
			if iagaMissing(text) {
				text = nil
			}
			if err := r.value(p, j, p.setText(r.values, j, text)); err != nil {
				return fmt.Errorf("parameter %s: %w", p.Name, err)
			}
			n++
		}
	}
	return nil
}

// iagaMissing says whether an element stands for none: 99999.00 was not measured,
// 88888.00 never is.
func iagaMissing(text []byte) bool {
	return bytes.HasPrefix(text, []byte("99999")) || bytes.HasPrefix(text, []byte("88888"))
}
