// SPDX-License-Identifier: Apache-2.0

// Package decode reads payloads (objects, and the datagrams in segments) as an
// Instrument's channels declare them, and turns them into samples: a time, and the
// values of all parameters in the binary form of HAPI 3. HAPI is served from them.
//
// A Decoder does no I/O but to read what it is given, and may be used by any number
// of goroutines at once. Start reading at Decoder.Decode; each type of payload has a
// file of its own.
package decode

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Sample is what was observed at one time.
type Sample struct {
	// Time in nanoseconds since 1970, UTC, cut to the channel's precision.
	Time int64
	// Values of all parameters one after the other, see Parameter: doubles of IEEE
	// 754, integers of 4 bytes, both little-endian, and text filled up with zeros. They
	// are good until emit returns.
	Values []byte
}

// Parameter says where the values of a parameter stand in Sample.Values.
type Parameter struct {
	wire.ParameterEntry
	// At is the first byte, Width how many bytes one value has, Count how many values
	// there are.
	At, Width, Count int
	// FillBytes are the bytes of a missing value; nil if none may be missing.
	FillBytes []byte
}

// Undecodable says which part of a payload is not as its channel declares. Everything
// that can be read was emitted all the same.
type Undecodable struct {
	// Records that cannot be read.
	Records int
	// First says why the first of them cannot.
	First error
}

// Error says how much is lost, and why.
func (u *Undecodable) Error() string {
	return fmt.Sprintf("%d undecodable, the first: %v", u.Records, u.First)
}

// Unwrap returns the first reason.
func (u *Undecodable) Unwrap() error { return u.First }

// add counts a record.
func (u *Undecodable) add(why error) {
	if u.Records++; u.First == nil {
		u.First = why
	}
}

// ErrChannel: a channel's declaration contradicts itself.
var ErrChannel = errors.New("channel cannot be read")

// errMissing: a value is not there, and the parameter has no fill.
var errMissing = errors.New("a value is missing and the parameter has no fill")

// layout is a type of payload.
type layout interface {
	// payload reads a whole payload, read one that need not fit in memory. Both report to r, and continue behind what they cannot read;
	// read returns the errors of in, and of nothing else.
	payload(r *run, payload []byte)
	read(r *run, in io.Reader) error
}

// Decoder reads the payloads of one channel.
type Decoder struct {
	entry      wire.ChannelEntry
	parameters []Parameter
	// blank are the values of a sample in which everything is missing.
	blank []byte
	// step is the precision in nanoseconds.
	step   int64
	layout layout
	runs   sync.Pool
}

// New returns a decoder. Error: ErrChannel.
func New(entry wire.ChannelEntry) (*Decoder, error) {
	d := &Decoder{entry: entry}
	if err := d.arrange(); err != nil {
		return nil, fmt.Errorf("channel %s: %w: %w", entry.Name, ErrChannel, err)
	}
	d.runs.New = func() any { return &run{d: d, values: make([]byte, len(d.blank))} }
	return d, nil
}

// arrange lays out samples, and prepares the reading of payloads.
func (d *Decoder) arrange() (err error) {
	if len(d.entry.Parameters) == 0 {
		return errors.New("it has no parameters")
	}
	for i := range d.entry.Parameters {
		p, err := newParameter(d.entry.Parameters[i], len(d.blank))
		if err != nil {
			return fmt.Errorf("parameter %s: %w", d.entry.Parameters[i].Name, err)
		}
		if len(d.blank)+p.Count*p.Width > maxSample {
			return fmt.Errorf("a sample of more than %d bytes", maxSample)
		}
		for range p.Count {
			if p.FillBytes == nil {
				d.blank = append(d.blank, make([]byte, p.Width)...)
			} else {
				d.blank = append(d.blank, p.FillBytes...)
			}
		}
		d.parameters = append(d.parameters, p)
	}
	steps := map[string]time.Duration{wire.PrecisionSeconds: time.Second, wire.PrecisionMilliseconds: time.Millisecond,
		wire.PrecisionMicroseconds: time.Microsecond, wire.PrecisionNanoseconds: 1}
	if d.step = int64(steps[d.entry.Time.Precision]); d.step == 0 {
		return fmt.Errorf("unknown precision %q", d.entry.Time.Precision)
	}
	if s := d.entry.Time.Source; s != wire.TimeReceived && s != wire.TimePayload {
		return fmt.Errorf("unknown source of times %q", s)
	}
	d.layout, err = d.newLayout()
	return err
}

func (d *Decoder) newLayout() (layout, error) {
	switch t := d.entry.Payload.Type; t {
	case wire.PayloadCSV:
		return newCSV(d)
	case wire.PayloadJSON:
		return newJSON(d)
	case wire.PayloadBinary:
		return newBinary(d)
	case wire.PayloadIAGA2002:
		return newIAGA(d)
	case wire.PayloadOASIS:
		return newOASIS(d)
	default:
		return nil, fmt.Errorf("unknown type of payload %q", t)
	}
}

// Parameters returns the parameters in the order of their values. They are shared.
func (d *Decoder) Parameters() []Parameter { return d.parameters }

// Width is how many bytes Sample.Values has.
func (d *Decoder) Width() int { return len(d.blank) }

// Entry is what the decoder was made from.
func (d *Decoder) Entry() wire.ChannelEntry { return d.entry }

// Cut returns a time, in nanoseconds since 1970, as samples have it: cut to the channel's
// precision.
func (d *Decoder) Cut(t int64) int64 {
	return t - ((t%d.step)+d.step)%d.step // also before 1970
}

// Decode reads a payload and calls emit for each sample, in the payload's order. Errors: *Undecodable, and an error of emit, which ends
// decoding.
func (d *Decoder) Decode(payload []byte, receivedAt time.Time, emit func(Sample) error) error {
	r := d.begin(receivedAt, emit)
	d.layout.payload(r, payload)
	return d.end(r)
}

// Read is Decode for a payload that need not fit in memory: of lines and of binary
// records only some must; of all else at most 16 MiB are read. It also returns the
// errors of in.
func (d *Decoder) Read(in io.Reader, receivedAt time.Time, emit func(Sample) error) error {
	return d.read(in, receivedAt, endsNone, emit)
}

// ReadObject is Read for an object that was archived, observed or received at a time. A last line without its end is not read, and counted, where
// the format has one on each line and this one is not all there, or where it is not known whether the object is whole: a number may be cut in it.
func (d *Decoder) ReadObject(in io.Reader, r *wire.Record, at time.Time, emit func(Sample) error) error {
	last := endsFixed
	switch {
	case r.Framing == wire.FramingLines: // the end stood behind it
		last = endsNone
	case r.Completeness == wire.CompletenessUnverified:
		last = endsAll
	}
	return d.read(in, at, last, emit)
}

func (d *Decoder) read(in io.Reader, at time.Time, last ends, emit func(Sample) error) error {
	r := d.begin(at, emit)
	r.ends = last
	err := d.layout.read(r, in)
	return errors.Join(err, d.end(r))
}

func (d *Decoder) begin(receivedAt time.Time, emit func(Sample) error) *run {
	r := d.runs.Get().(*run)
	r.emit, r.ends = emit, endsNone
	r.beginPayload(receivedAt)
	return r
}

func (d *Decoder) end(r *run) error {
	err := r.failed
	if err == nil && r.bad > 0 {
		err = &Undecodable{Records: r.bad, First: r.first}
	}
	r.emit, r.first, r.failed = nil, nil, nil
	clear(r.fields) // they hold the payload's memory
	d.runs.Put(r)
	return err
}

// run is the reading of one payload.
type run struct {
	d          *Decoder
	receivedAt time.Time
	emit       func(Sample) error
	// values are those of the record that is being read.
	values []byte

	emitted, bad int
	first        error
	// failed is what emit returned: nothing more is read.
	failed error
	// partly: a value of the record could not be read, and counts; got is how many could, or are missing.
	partly bool
	got    int
	// ends says which last lines are not read.
	ends ends

	// Layouts keep these from payload to payload to avoid allocations.
	fields [][]byte
	spare  []byte
	dates  dates
	state  any
}

// beginPayload begins a payload.
func (r *run) beginPayload(receivedAt time.Time) {
	r.receivedAt = receivedAt
	r.emitted, r.bad, r.first, r.failed, r.partly = 0, 0, nil, nil, false
}

// start begins a record in which everything is missing.
func (r *run) start() {
	r.partly, r.got = false, 0
	copy(r.values, r.d.blank)
}

// value judges what reading a value came to. One that cannot be read is missing where its parameter has a fill, and its record
// counts once as undecodable: the other values of it are served, if there are any.
func (r *run) value(p *Parameter, i int, err error) error {
	if err == nil {
		r.got++
	}
	if err == nil || p.FillBytes == nil {
		return err
	}
	copy(p.place(r.values, i), p.FillBytes)
	if !r.partly {
		r.skip("parameter %s: %w", p.Name, err)
		r.partly = true
	}
	return nil
}

// skip counts a record that cannot be read, once.
func (r *run) skip(format string, args ...any) {
	if r.partly {
		r.partly = false
		return
	}
	r.bad++
	if r.first == nil {
		r.first = fmt.Errorf(format, args...)
	}
}

// emitTimed emits the record that was read, observed at t, and says whether to continue.
func (r *run) emitTimed(t int64) bool {
	if r.partly && r.got == 0 {
		return true
	}
	if r.failed = r.emit(Sample{Time: r.d.Cut(t), Values: r.values}); r.failed != nil {
		return false
	}
	r.emitted++
	r.partly = false
	return true
}

// emitUntimed emits a record that has no time of its own: of a payload there can only
// be one.
func (r *run) emitUntimed() bool {
	if r.partly && r.got == 0 {
		return true
	}
	if r.emitted > 0 {
		r.skip("a further record in a payload whose records have no time of their own")
		return true
	}
	t, err := nanoseconds(r.receivedAt)
	if err != nil {
		r.skip("time: %w", err)
		return true
	}
	return r.emitTimed(t)
}
