// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/substorm/substorm/internal/wire"
)

// Bounds on what a channel may declare, in bytes and values.
const (
	maxSample = 64 << 10
	maxText   = 4 << 10
	maxValues = 8 << 10
)

func newParameter(e wire.ParameterEntry, at int) (Parameter, error) {
	p := Parameter{ParameterEntry: e, At: at, Count: 1}
	for _, n := range e.Size {
		if n < 1 || n > maxValues || p.Count*n > maxValues {
			return Parameter{}, fmt.Errorf("size %v: an array has 1 to %d values", e.Size, maxValues)
		}
		p.Count *= n
	}
	switch e.Type {
	case wire.ParameterDouble:
		p.Width = 8
	case wire.ParameterInteger:
		p.Width = 4
	case wire.ParameterString:
		p.Width = e.Length
		if e.Length < 1 || e.Length > maxText {
			return Parameter{}, fmt.Errorf("length %d: text has 1 to %d bytes", e.Length, maxText)
		}
	default:
		return Parameter{}, fmt.Errorf("unknown type %q", e.Type)
	}
	if e.Fill == nil {
		return p, nil
	}
	fill := make([]byte, p.Width)
	var err error
	if e.Type == wire.ParameterDouble && *e.Fill == "NaN" {
		binary.LittleEndian.PutUint64(fill, quietNaN)
	} else {
		err = p.putText(fill, []byte(*e.Fill))
	}
	if err != nil {
		return Parameter{}, fmt.Errorf("fill %q: %w", *e.Fill, err)
	}
	p.FillBytes = fill
	return p, nil
}

// quietNaN is what HAPI has for a double that is no number.
const quietNaN = 0x7ff8000000000000

var (
	errNoNumber = errors.New("not a number")
	errTooLarge = errors.New("the number is too large")
	errTooLong  = errors.New("the text is too long")
)

// place returns where a value stands in a sample.
func (p *Parameter) place(values []byte, i int) []byte {
	return values[p.At+i*p.Width : p.At+(i+1)*p.Width]
}

// setText sets a value to what a text says. An empty one is missing, as are numbers
// that are none, as NaN.
func (p *Parameter) setText(values []byte, i int, text []byte) error {
	if len(text) == 0 || p.Type != wire.ParameterString && noNumber(text) {
		return p.setMissing(values, i)
	}
	return p.putText(p.place(values, i), text)
}

// setMissing sets a value to the fill.
func (p *Parameter) setMissing(values []byte, i int) error {
	if p.FillBytes == nil {
		return errMissing
	}
	copy(p.place(values, i), p.FillBytes)
	return nil
}

func (p *Parameter) putText(to, text []byte) error {
	switch p.Type {
	case wire.ParameterDouble:
		f, err := parseFloat(text)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(to, math.Float64bits(f))
	case wire.ParameterInteger:
		n, err := parseInteger(text)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(to, uint32(n))
	default:
		if len(text) > len(to) {
			return errTooLong
		}
		if !utf8.Valid(text) {
			text = cutText(bytes.ToValidUTF8(text, replacement), len(to))
		}
		clear(to[copy(to, text):])
	}
	return nil
}

// replacement stands for bytes that are not of UTF-8: HAPI's text is, in each of its formats.
var replacement = []byte("\ufffd")

// cutText cuts a text to a length in bytes, between characters.
func cutText(text []byte, length int) []byte {
	if len(text) <= length {
		return text
	}
	for length > 0 && !utf8.RuneStart(text[length]) {
		length--
	}
	return text[:length]
}

// noNumber says whether a text stands for a number that is none, as IEEE 754 (5.12.1) and C write it.
func noNumber(text []byte) bool {
	if text[0] == '-' || text[0] == '+' {
		text = text[1:]
	}
	if bytes.HasPrefix(text, windowsNumber) {
		return true
	}
	if len(text) < 3 || text[0] >= '0' && text[0] <= '9' {
		return false
	}
	if i := bytes.IndexByte(text, '('); i > 0 && text[len(text)-1] == ')' { // what it is made of
		text = text[:i]
	}
	for _, word := range noNumbers {
		if bytes.EqualFold(text, word) {
			return true
		}
	}
	return false
}

// noNumbers are the words for numbers that are none; windowsNumber begins those of Microsoft's C library, which rounds the word too: 1.#INF,
// 1.#QNAN0, or with two decimals 1.#J.
var (
	noNumbers     = [][]byte{[]byte("nan"), []byte("inf"), []byte("infinity"), []byte("snan"), []byte("qnan")}
	windowsNumber = []byte("1.#")
)

// pow10 are powers of ten, which a double holds exactly.
var pow10 = [exactDigits + 1]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// exactDigits is how many decimal digits a double holds exactly, whatever they are.
const exactDigits = 15

// parseFloat reads a decimal number. Up to 15 digits both the digits and the power
// of ten are exact, so that one division rounds as it should; all else is left to
// strconv.
func parseFloat(text []byte) (float64, error) {
	rest, negative := text, false
	if len(rest) > 0 && (rest[0] == '-' || rest[0] == '+') {
		negative, rest = rest[0] == '-', rest[1:]
	}
	mantissa, whole := leadingDigits(0, rest)
	digits, end := whole, whole
	if end < len(rest) && rest[end] == '.' {
		end++
		var decimals int
		mantissa, decimals = leadingDigits(mantissa, rest[end:])
		digits, end = digits+decimals, end+decimals
	}
	switch exponent := end < len(rest)-1 && rest[end]|0x20 == 'e'; {
	case digits == 0 || end < len(rest) && !exponent:
		return 0, errNoNumber
	case digits > exactDigits || exponent:
		return parseSlowly(text)
	}
	f := float64(mantissa) / pow10[digits-whole]
	if negative {
		f = -f
	}
	return f, nil
}

// leadingDigits adds those that a text begins with to a number, and says how many there
// are.
func leadingDigits(n uint64, text []byte) (uint64, int) {
	for i, c := range text {
		if c < '0' || c > '9' {
			return n, i
		}
		n = n*10 + uint64(c-'0')
	}
	return n, len(text)
}

func parseSlowly(text []byte) (float64, error) {
	for _, c := range text { // strconv knows hexadecimal numbers, too
		if (c < '0' || c > '9') && c != '.' && c != 'e' && c != 'E' && c != '+' && c != '-' {
			return 0, errNoNumber
		}
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errTooLarge
	}
	if err != nil {
		return 0, errNoNumber
	}
	return f, nil
}

// parseInteger reads an integer of 32 bits, however its text writes it.
func parseInteger(text []byte) (int32, error) {
	f, err := parseFloat(text)
	if err != nil {
		return 0, err
	}
	return integer(f)
}

// integer returns the integer that f is.
func integer(f float64) (int32, error) {
	if f != math.Trunc(f) {
		return 0, fmt.Errorf("%v is not an integer", f)
	}
	if f < math.MinInt32 || f > math.MaxInt32 {
		return 0, errTooLarge
	}
	return int32(f), nil
}

// parseDigits reads an unsigned number of digits alone.
func parseDigits(text []byte) (int, bool) {
	if len(text) == 0 || len(text) > 9 {
		return 0, false
	}
	n := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}
