// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

// writer turns samples into the text or bytes of an answer.
type writer struct {
	format     format
	parameters []decode.Parameter
	stamp      stamp
	// count of samples so far.
	count int
}

func newWriter(f format, d *dataset, chosen []int) *writer {
	return &writer{format: f, parameters: pick(d.decoder.Parameters(), chosen), stamp: newStamp(d.channel.Time.Precision)}
}

// append adds a sample to b.
func (w *writer) append(b []byte, t int64, values []byte) []byte {
	w.count++
	switch w.format {
	case formatBinary:
		b = w.stamp.append(b, t)
		for i := range w.parameters {
			p := &w.parameters[i]
			b = append(b, values[p.At:p.At+p.Count*p.Width]...)
		}
		return b
	case formatJSON:
		return w.appendJSON(b, t, values)
	}
	b = w.stamp.append(b, t)
	for i := range w.parameters {
		p := &w.parameters[i]
		for j := range p.Count {
			b = append(b, ',')
			v := values[p.At+j*p.Width:][:p.Width]
			if p.Type == wire.ParameterString {
				b = appendQuoted(b, text(v))
			} else {
				b = appendNumber(b, p, v)
			}
		}
	}
	return append(b, '\n')
}

func (w *writer) appendJSON(b []byte, t int64, values []byte) []byte {
	if w.count > 1 {
		b = append(b, ",\n"...)
	}
	b = append(b, `["`...)
	b = append(w.stamp.append(b, t), '"')
	for i := range w.parameters {
		p := &w.parameters[i]
		b = append(b, ',')
		b, _ = appendArray(b, p, p.Size, values[p.At:])
	}
	return append(b, ']')
}

// appendArray writes values as arrays of a size, the last dimension innermost, and returns the
// values that follow.
func appendArray(b []byte, p *decode.Parameter, size []int, values []byte) (out, rest []byte) {
	if len(size) == 0 {
		v := values[:p.Width]
		switch {
		case p.Type == wire.ParameterString:
			b, _ = jsontext.AppendQuote(b, text(v))
		case p.Type == wire.ParameterDouble && math.IsNaN(double(v)):
			b = append(b, "null"...)
		default:
			b = appendNumber(b, p, v)
		}
		return b, values[p.Width:]
	}
	b = append(b, '[')
	for i := range size[0] {
		if i > 0 {
			b = append(b, ',')
		}
		b, values = appendArray(b, p, size[1:], values)
	}
	return append(b, ']'), values
}

// text is a string without the zeros that fill it up.
func text(v []byte) []byte { return bytes.TrimRight(v, "\x00") }

func double(v []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(v)) }

// appendQuoted writes a text as a column (RFC 4180).
func appendQuoted(b, text []byte) []byte {
	if !bytes.ContainsAny(text, ",\"\r\n") {
		return append(b, text...)
	}
	b = append(b, '"')
	for _, c := range text {
		if c == '"' {
			b = append(b, '"')
		}
		b = append(b, c)
	}
	return append(b, '"')
}

func appendNumber(b []byte, p *decode.Parameter, v []byte) []byte {
	if p.Type == wire.ParameterInteger {
		return strconv.AppendInt(b, int64(int32(binary.LittleEndian.Uint32(v))), 10)
	}
	return appendDouble(b, double(v))
}

// Decimal numbers of up to four decimals, which measurements mostly are, are written
// without a search for the shortest text: where n/10000 is the double, its decimals are
// that text.
const (
	decimals    = 10_000
	maxDecimals = 1e11
)

// appendDouble writes the shortest text that reads as the number.
func appendDouble(b []byte, f float64) []byte {
	if f > -maxDecimals && f < maxDecimals && f != 0 {
		if n := math.Round(f * decimals); n/decimals == f {
			return appendDecimal(b, int64(n))
		}
	}
	return strconv.AppendFloat(b, f, 'g', -1, 64)
}

// appendDecimal writes ten-thousandths.
func appendDecimal(b []byte, n int64) []byte {
	if n < 0 {
		b = append(b, '-')
		n = -n
	}
	b = strconv.AppendInt(b, n/decimals, 10)
	rest := n % decimals
	if rest == 0 {
		return b
	}
	b = append(b, '.', byte('0'+rest/1000), byte('0'+rest/100%10), byte('0'+rest/10%10), byte('0'+rest%10))
	for b[len(b)-1] == '0' {
		b = b[:len(b)-1]
	}
	return b
}

// stamp writes times. It keeps the date that it wrote last.
type stamp struct {
	// digits behind the point.
	digits int
	day    int64
	date   []byte
}

func newStamp(precision string) stamp {
	i := slices.Index([]string{wire.PrecisionSeconds, wire.PrecisionMilliseconds, wire.PrecisionMicroseconds, wire.PrecisionNanoseconds}, precision)
	return stamp{digits: 3 * max(i, 0), day: math.MinInt64}
}

// append adds a time to b: 2006-01-02T15:04:05.000Z.
func (s *stamp) append(b []byte, t int64) []byte {
	number, in := t/int64(day), t%int64(day)
	if in < 0 {
		number, in = number-1, in+int64(day)
	}
	if number != s.day {
		s.day = number
		s.date = time.Unix(number*int64(day/time.Second), 0).UTC().AppendFormat(s.date[:0], "2006-01-02T")
	}
	b = append(b, s.date...)
	seconds, fraction := in/int64(time.Second), in%int64(time.Second)
	b = appendTwo(b, seconds/3600)
	b = appendTwo(append(b, ':'), seconds/60%60)
	b = appendTwo(append(b, ':'), seconds%60)
	if s.digits > 0 {
		b = append(b, '.')
		for i, unit := 0, int64(time.Second)/10; i < s.digits; i, unit = i+1, unit/10 {
			b = append(b, byte('0'+fraction/unit%10))
		}
	}
	return append(b, 'Z')
}

func appendTwo(b []byte, n int64) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }
