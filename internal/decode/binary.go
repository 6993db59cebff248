// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/substorm/substorm/internal/wire"
)

// maxRecord is how large a record may be, in bytes.
const maxRecord = 1 << 20

// number is how a value is written in binary.
type number struct {
	encoding string
	// width in bytes; for text, the width of its parameter.
	width int
	order binary.ByteOrder
}

var widths = map[string]int{
	wire.EncodingInt8: 1, wire.EncodingUInt8: 1, wire.EncodingInt16: 2, wire.EncodingUInt16: 2,
	wire.EncodingInt32: 4, wire.EncodingUInt32: 4, wire.EncodingInt64: 8, wire.EncodingUInt64: 8,
	wire.EncodingFloat32: 4, wire.EncodingFloat64: 8,
}

func newNumber(encoding, byteOrder string, text int) (number, error) {
	n := number{encoding: encoding, width: widths[encoding], order: binary.LittleEndian}
	switch byteOrder {
	case wire.LittleEndian, "":
	case wire.BigEndian:
		n.order = binary.BigEndian
	default:
		return number{}, fmt.Errorf("unknown byte order %q", byteOrder)
	}
	if encoding == wire.EncodingText {
		n.width = text
	}
	if n.width == 0 {
		return number{}, fmt.Errorf("unknown encoding %q", encoding)
	}
	return n, nil
}

// load reads a number: as a double, and where it is an integer exactly as that. An
// unsigned one beyond 2^63 is only a double.
func (n number) load(b []byte) (f float64, i int64, exact bool) {
	switch n.encoding {
	case wire.EncodingInt8:
		i = int64(int8(b[0]))
	case wire.EncodingUInt8:
		i = int64(b[0])
	case wire.EncodingInt16:
		i = int64(int16(n.order.Uint16(b)))
	case wire.EncodingUInt16:
		i = int64(n.order.Uint16(b))
	case wire.EncodingInt32:
		i = int64(int32(n.order.Uint32(b)))
	case wire.EncodingUInt32:
		i = int64(n.order.Uint32(b))
	case wire.EncodingInt64:
		i = int64(n.order.Uint64(b))
	case wire.EncodingUInt64:
		u := n.order.Uint64(b)
		if u > math.MaxInt64 {
			return float64(u), 0, false
		}
		i = int64(u)
	case wire.EncodingFloat32:
		return float64(math.Float32frombits(n.order.Uint32(b))), 0, false
	case wire.EncodingFloat64:
		return math.Float64frombits(n.order.Uint64(b)), 0, false
	}
	return float64(i), i, true
}

// binaryField is a parameter in a record.
type binaryField struct {
	number
	at int
}

// set sets all values of a parameter from a record.
func (f binaryField) set(r *run, p *Parameter, record []byte) error {
	values := r.values
	for i := range p.Count {
		b := record[f.at+i*f.width : f.at+(i+1)*f.width]
		if p.Type == wire.ParameterString {
			if err := r.value(p, i, p.setText(values, i, bytes.TrimRight(b, "\x00"))); err != nil {
				return err
			}
			continue
		}
		v, _, _ := f.load(b)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			if err := p.setMissing(values, i); err != nil {
				return err
			}
			continue
		}
		to := p.place(values, i)
		if p.Type == wire.ParameterDouble {
			binary.LittleEndian.PutUint64(to, math.Float64bits(v))
			continue
		}
		n, err := integer(v)
		if err == nil {
			binary.LittleEndian.PutUint32(to, uint32(n))
		}
		if err := r.value(p, i, err); err != nil {
			return err
		}
	}
	return nil
}

// newFields returns where the parameters stand, and how long a record is at least.
func newFields(d *Decoder) (fields []binaryField, size int, err error) {
	for i := range d.parameters {
		p := &d.parameters[i]
		n, err := newNumber(p.Encoding, d.entry.Payload.ByteOrder, p.Length)
		if err == nil && (p.Type == wire.ParameterString) != (n.encoding == wire.EncodingText) {
			err = fmt.Errorf("a parameter of type %s cannot have the encoding %s", p.Type, p.Encoding)
		}
		if err == nil && (p.Offset < 0 || p.Offset+p.Count*n.width > maxRecord) {
			err = fmt.Errorf("offset %d: a record has at most %d bytes", p.Offset, maxRecord)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("parameter %s: %w", p.Name, err)
		}
		fields = append(fields, binaryField{n, p.Offset})
		size = max(size, p.Offset+p.Count*n.width)
	}
	return fields, size, nil
}

// binaryLayout reads records of fixed places, after a header.
type binaryLayout struct {
	d      *Decoder
	fields []binaryField
	// header and record in bytes; record 0: what follows the header is one. least is
	// what a record has at least.
	header, record, least int

	timed bool
	time  binaryField
	clock clock
}

func newBinary(d *Decoder) (layout, error) {
	e := &d.entry
	b := &binaryLayout{d: d, header: e.Payload.Header, record: e.Payload.Record, timed: e.Time.Source == wire.TimePayload}
	var err error
	if b.fields, b.least, err = newFields(d); err != nil {
		return nil, err
	}
	if b.timed {
		n, err := newNumber(e.Time.Encoding, e.Payload.ByteOrder, 0)
		if err != nil {
			return nil, fmt.Errorf("time: %w", err)
		}
		if b.clock, err = newClock(e.Time.Format); err == nil && b.clock.iso {
			err = fmt.Errorf("a binary time must be a number, not %s", e.Time.Format)
		}
		if err == nil && (e.Time.Offset < 0 || e.Time.Offset+n.width > maxRecord) {
			err = fmt.Errorf("offset %d: a record has at most %d bytes", e.Time.Offset, maxRecord)
		}
		if err != nil {
			return nil, fmt.Errorf("time: %w", err)
		}
		b.time = binaryField{n, e.Time.Offset}
		b.least = max(b.least, e.Time.Offset+n.width)
	}
	if b.header < 0 || b.header > maxRecord || b.record < 0 || b.record > maxRecord {
		return nil, fmt.Errorf("header of %d and records of %d bytes: both have at most %d", b.header, b.record, maxRecord)
	}
	if b.record > 0 && b.record < b.least {
		return nil, fmt.Errorf("records of %d bytes do not hold their parameters, which take %d", b.record, b.least)
	}
	return b, nil
}

func (b *binaryLayout) payload(r *run, payload []byte) {
	if len(payload) < b.header {
		r.skip("%d bytes: the header has %d", len(payload), b.header)
		return
	}
	payload = payload[b.header:]
	if b.record == 0 {
		if len(payload) < b.least {
			r.skip("a record of %d bytes: the minimum is %d", len(payload), b.least)
			return
		}
		b.one(r, 1, payload)
		return
	}
	number := 1
	for ; len(payload) >= b.record; number++ {
		if !b.one(r, number, payload[:b.record]) {
			return
		}
		payload = payload[b.record:]
	}
	if len(payload) > 0 {
		r.skip("record %d has %d bytes of %d", number, len(payload), b.record)
	}
}

// one reads a record.
func (b *binaryLayout) one(r *run, number int, record []byte) bool {
	r.start()
	for i := range b.fields {
		if err := b.fields[i].set(r, &b.d.parameters[i], record); err != nil {
			r.skip("record %d: parameter %s: %w", number, b.d.parameters[i].Name, err)
			return true
		}
	}
	if !b.timed {
		return r.emitUntimed()
	}
	f, i, exact := b.time.load(record[b.time.at : b.time.at+b.time.width])
	var t int64
	var err error
	if exact {
		t, err = b.clock.integer(i)
	} else {
		t, err = b.clock.float(f)
	}
	if err != nil {
		r.skip("record %d: time: %w", number, err)
		return true
	}
	return r.emitTimed(t)
}

func (b *binaryLayout) read(r *run, in io.Reader) error {
	if b.record == 0 {
		return readAll(r, b, in, b.header+maxRecord)
	}
	buffered := bufio.NewReaderSize(in, 64<<10)
	n, err := io.CopyN(io.Discard, buffered, int64(b.header))
	if errors.Is(err, io.EOF) {
		r.skip("%d bytes: the header has %d", n, b.header)
		return nil
	}
	if err != nil {
		return err
	}
	record := make([]byte, b.record)
	for number := 1; ; number++ {
		n, err := io.ReadFull(buffered, record)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			r.skip("record %d has %d bytes of %d", number, n, b.record)
			return nil
		}
		if err != nil {
			return err
		}
		if !b.one(r, number, record) {
			return nil
		}
	}
}

// readAll reads a payload that must fit in memory, which has at most limit bytes.
func readAll(r *run, l layout, in io.Reader, limit int) error {
	payload, err := io.ReadAll(io.LimitReader(in, int64(limit)+1))
	if err != nil {
		return err
	}
	if len(payload) > limit {
		r.skip("a payload of more than %d bytes", limit)
		return nil
	}
	l.payload(r, payload)
	return nil
}
