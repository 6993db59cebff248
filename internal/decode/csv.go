// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"bytes"
	"fmt"

	"github.com/substorm/substorm/internal/wire"
)

// maxColumns bounds the columns of a line that are looked at.
const maxColumns = 4096

// csvLayout reads lines of columns (RFC 4180, or between blanks). A line is one
// record, also where a quoted column would hold its end.
type csvLayout struct {
	d         *Decoder
	separator byte
	// decimalComma: numbers and times may have a comma before their decimals.
	decimalComma bool
	comment      []byte
	skip         int
	clock        clock
	// times are the columns of the time, columns those of the parameters, from 0.
	times, columns []int
	// last column that is looked at.
	last int
}

func newCSV(d *Decoder) (layout, error) {
	e := &d.entry
	c := &csvLayout{d: d, decimalComma: e.Payload.DecimalComma, comment: []byte(e.Payload.Comment), skip: e.Payload.SkipLines}
	if len(e.Payload.Separator) != 1 || e.Payload.Separator == `"` {
		return nil, fmt.Errorf("the separator %q is not one character", e.Payload.Separator)
	}
	c.separator = e.Payload.Separator[0]
	for _, p := range d.parameters {
		if p.Column < 1 || p.Column-1+p.Count > maxColumns {
			return nil, fmt.Errorf("parameter %s: column %d: columns are 1 to %d", p.Name, p.Column, maxColumns)
		}
		c.columns = append(c.columns, p.Column-1)
		c.last = max(c.last, p.Column-1+p.Count-1)
	}
	if e.Time.Source != wire.TimePayload {
		return lines{lined: c}, nil
	}
	if len(e.Time.Columns) < 1 || len(e.Time.Columns) > 2 {
		return nil, fmt.Errorf("%d columns of time: declare one, or a date and a time of day", len(e.Time.Columns))
	}
	for _, column := range e.Time.Columns {
		if column < 1 || column > maxColumns {
			return nil, fmt.Errorf("column %d of time: columns are 1 to %d", column, maxColumns)
		}
		c.times = append(c.times, column-1)
		c.last = max(c.last, column-1)
	}
	var err error
	c.clock, err = newClock(e.Time.Format)
	if err == nil && len(c.times) == 2 && !c.clock.iso {
		err = fmt.Errorf("two columns of time must be a date and a time of day, not %s", e.Time.Format)
	}
	return lines{lined: c}, err
}

func (c *csvLayout) begin(*run) {}

func (c *csvLayout) line(r *run, number int, line []byte) bool {
	if number <= c.skip || len(bytes.TrimSpace(line)) == 0 || len(c.comment) > 0 && bytes.HasPrefix(line, c.comment) {
		return true
	}
	r.start()
	if !c.split(r, line) {
		r.skip("line %d: a quoted column has no end", number)
		return true
	}
	for i := range c.d.parameters {
		if err := c.parameter(r, &c.d.parameters[i], c.columns[i]); err != nil {
			r.skip("line %d: parameter %s: %w", number, c.d.parameters[i].Name, err)
			return true
		}
	}
	if len(c.times) == 0 {
		return r.emitUntimed()
	}
	text := c.timeText(r)
	if !c.clock.iso && c.decimalComma {
		text = bytes.Replace(text, []byte(","), []byte("."), 1)
	}
	t, err := c.clock.text(r, text)
	if err != nil {
		r.skip("line %d: time: %w", number, err)
		return true
	}
	return r.emitTimed(t)
}

// parameter sets all values of a parameter. Columns that a short line does not have
// are missing.
func (c *csvLayout) parameter(r *run, p *Parameter, column int) error {
	for i := range p.Count {
		if err := r.value(p, i, p.setText(r.values, i, c.number(r, p, field(r.fields, column+i)))); err != nil {
			return err
		}
	}
	return nil
}

// number is a column as numbers are read, with a point where a decimal comma is declared. A text with two marks is left as it is, and is no
// number.
func (c *csvLayout) number(r *run, p *Parameter, text []byte) []byte {
	if !c.decimalComma || p.Type == wire.ParameterString || bytes.IndexByte(text, '.') >= 0 {
		return text
	}
	i := bytes.IndexByte(text, ',')
	if i < 0 || bytes.IndexByte(text[i+1:], ',') >= 0 {
		return text
	}
	r.spare = append(r.spare[:0], text...)
	r.spare[i] = '.'
	return r.spare
}

func field(fields [][]byte, i int) []byte {
	if i < len(fields) {
		return fields[i]
	}
	return nil
}

// timeText is what stands in the columns of the time.
func (c *csvLayout) timeText(r *run) []byte {
	text := field(r.fields, c.times[0])
	if len(c.times) == 1 {
		return text
	}
	r.spare = append(append(append(r.spare[:0], text...), 'T'), field(r.fields, c.times[1])...)
	return r.spare
}

// split cuts a line into r.fields, blanks around them cut off.
func (c *csvLayout) split(r *run, line []byte) bool {
	r.fields = r.fields[:0]
	if c.separator == ' ' {
		r.fields = blanks(r.fields, line)
		return true
	}
	for len(r.fields) <= c.last {
		if start := bytes.TrimLeft(line, " "); len(start) > 0 && start[0] == '"' {
			text, rest, ok := unquote(start[1:], c.separator)
			if !ok {
				return false
			}
			r.fields = append(r.fields, text)
			if rest == nil {
				return true
			}
			line = rest
			continue
		}
		i := bytes.IndexByte(line, c.separator)
		if i < 0 {
			r.fields = append(r.fields, bytes.TrimSpace(line))
			return true
		}
		r.fields = append(r.fields, bytes.TrimSpace(line[:i]))
		line = line[i+1:]
	}
	return true
}

// unquote cuts a quoted column off, whose first quote is gone; rest is nil where it was
// the last. A quote that is doubled is one.
func unquote(line []byte, separator byte) (text, rest []byte, ok bool) {
	doubled := false
	for i := 0; i < len(line); i++ {
		if line[i] != '"' {
			continue
		}
		if i+1 < len(line) && line[i+1] == '"' {
			doubled = true
			i++
			continue
		}
		text, rest = line[:i], bytes.TrimLeft(line[i+1:], " ")
		if doubled {
			text = bytes.ReplaceAll(text, []byte(`""`), []byte(`"`))
		}
		if len(rest) == 0 {
			return text, nil, true
		}
		return text, rest[1:], rest[0] == separator
	}
	return nil, nil, false
}
