// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/substorm/substorm/internal/wire"
)

// maxJSON is how large a payload of JSON may be that is read from a stream, in bytes.
const maxJSON = 16 << 20

// jsonLayout reads values of JSON, one after the other (also one a line). Records are
// an object, or the members of an array.
type jsonLayout struct {
	d *Decoder
	// records is the way to them, from the payload's top.
	records []string
	// record is what of a record is read.
	record *jsonNode
	timed  bool
	clock  clock
}

// jsonNode is a place in a record: something that is read, or the way to it.
type jsonNode struct {
	names map[string]*jsonNode
	items []*jsonNode
	// parameter that stands here, from 1; 0: none does. time: the time does.
	parameter int
	time      bool
}

// maxItem is the greatest index in a pointer.
const maxItem = 4095

func newJSON(d *Decoder) (layout, error) {
	e := &d.entry
	j := &jsonLayout{d: d, record: &jsonNode{}, timed: e.Time.Source == wire.TimePayload}
	var err error
	if j.records, err = pointer(e.Payload.Records); err != nil {
		return nil, err
	}
	for i, p := range d.parameters {
		at, err := j.record.at(p.Path)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", p.Name, err)
		}
		at.parameter = i + 1
	}
	if !j.timed {
		return j, nil
	}
	at, err := j.record.at(e.Time.Path)
	if err != nil {
		return nil, fmt.Errorf("time: %w", err)
	}
	at.time = true
	j.clock, err = newClock(e.Time.Format)
	return j, err
}

// pointer splits a JSON pointer (RFC 6901).
func pointer(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	if text[0] != '/' {
		return nil, fmt.Errorf("%q is not a JSON pointer: it must begin with /", text)
	}
	return slices.Collect(jsontext.Pointer(text).Tokens()), nil
}

// at makes the place of a pointer. Nothing else may be there.
func (n *jsonNode) at(text string) (*jsonNode, error) {
	parts, err := pointer(text)
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return nil, errors.New("the path is empty: use a JSON pointer into the record, such as /field/x")
	}
	for _, part := range parts {
		if n.parameter > 0 || n.time {
			return nil, fmt.Errorf("path %s: a path above it is already in use", text)
		}
		n = n.child(part)
	}
	if n.parameter > 0 || n.time || len(n.names) > 0 {
		return nil, fmt.Errorf("path %s: it, or a path below it, is already in use", text)
	}
	return n, nil
}

// child makes what stands under a name, or an index.
func (n *jsonNode) child(part string) *jsonNode {
	if n.names == nil {
		n.names = map[string]*jsonNode{}
	}
	c := n.names[part]
	if c == nil {
		c = &jsonNode{}
		n.names[part] = c
	}
	if i, err := strconv.Atoi(part); err == nil && i >= 0 && i <= maxItem && strconv.Itoa(i) == part {
		for len(n.items) <= i {
			n.items = append(n.items, nil)
		}
		n.items[i] = c
	}
	return c
}

// jsonState is the reading of one payload.
type jsonState struct {
	decoder *jsontext.Decoder
	payload bytes.Buffer
	// number is how many records were read, and began how many were before the value that is being read.
	number, began int
	// bad and first are what run counted before the record that is being read.
	bad   int
	first error
	// text is a record that was repaired.
	text []byte
	// These are of the record: how many values of each parameter were read, the time, and what is wrong with it.
	filled  []int
	timed   bool
	time    int64
	problem error
	// failed: emit failed, nothing more is read.
	failed bool
}

func (j *jsonLayout) payload(r *run, payload []byte) {
	s, ok := r.state.(*jsonState)
	if !ok {
		s = &jsonState{decoder: new(jsontext.Decoder), filled: make([]int, len(j.d.parameters))}
		r.state = s
	}
	payload = bytes.TrimPrefix(payload, byteOrderMark)
	s.reset(payload)
	s.number, s.failed = 0, false
	for !s.failed {
		at := int(s.decoder.InputOffset())
		s.began = s.number
		s.mark(r)
		var err error
		if s.decoder.PeekKind() == 0 {
			if _, err = s.decoder.ReadToken(); errors.Is(err, io.EOF) {
				break
			}
		} else {
			err = j.find(r, s, j.records)
		}
		if err != nil {
			j.resume(r, s, payload, at, err)
			break
		}
	}
	s.payload, s.first = bytes.Buffer{}, nil
}

func (j *jsonLayout) read(r *run, in io.Reader) error { return readAll(r, j, in, maxJSON) }

// find goes down to the records and reads them. All errors are of syntax.
func (j *jsonLayout) find(r *run, s *jsonState, way []string) error {
	if len(way) == 0 {
		return j.all(r, s)
	}
	dec := s.decoder
	open := dec.PeekKind()
	if open != '{' && open != '[' {
		r.skip("no records at %s", j.d.entry.Payload.Records)
		return dec.SkipValue()
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	found := false
	for i := 0; more(dec) && !s.failed; i++ {
		this := open == '[' && strconv.Itoa(i) == way[0]
		if open == '{' {
			name, err := dec.ReadToken()
			if err != nil {
				return err
			}
			this = name.String() == way[0]
		}
		if !this {
			if err := dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		found = true
		if err := j.find(r, s, way[1:]); err != nil {
			return err
		}
	}
	if s.failed {
		return nil
	}
	if !found {
		r.skip("no records at %s", j.d.entry.Payload.Records)
	}
	_, err := dec.ReadToken()
	return err
}

// more says whether an object or an array has more elements; an error of syntax is said by what reads next.
func more(dec *jsontext.Decoder) bool {
	k := dec.PeekKind()
	return k != '}' && k != ']'
}

// all reads the record, or records, that come next.
func (j *jsonLayout) all(r *run, s *jsonState) error {
	if s.decoder.PeekKind() != '[' {
		return j.one(r, s)
	}
	if _, err := s.decoder.ReadToken(); err != nil {
		return err
	}
	for more(s.decoder) {
		if err := j.one(r, s); err != nil || s.failed {
			return err
		}
	}
	_, err := s.decoder.ReadToken()
	return err
}

// one reads a record.
func (j *jsonLayout) one(r *run, s *jsonState) error {
	s.timed, s.problem = false, nil
	clear(s.filled)
	r.start()
	if err := j.value(r, s, j.record); err != nil {
		return err
	}
	for i := range s.filled {
		p := &j.d.parameters[i]
		if s.problem == nil && s.filled[i] == 0 && p.FillBytes == nil {
			s.problem = fmt.Errorf("parameter %s: %w", p.Name, errMissing)
		}
	}
	if s.problem == nil && j.timed && !s.timed {
		s.problem = fmt.Errorf("time: %w", errNoTime)
	}
	s.number++
	switch {
	case s.problem != nil:
		r.skip("record %d: %w", s.number, s.problem)
	case j.timed:
		s.failed = !r.emitTimed(s.time)
	default:
		s.failed = !r.emitUntimed()
	}
	s.mark(r)
	return nil
}

// value reads what stands at a place; nil: nothing that is of interest.
func (j *jsonLayout) value(r *run, s *jsonState, n *jsonNode) error {
	dec := s.decoder
	switch {
	case n == nil:
		return dec.SkipValue()
	case n.time:
		return j.time(r, s)
	case n.parameter > 0:
		return j.parameter(r, s, n.parameter-1)
	}
	open := dec.PeekKind()
	if open != '{' && open != '[' {
		return dec.SkipValue()
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for i := 0; more(dec); i++ {
		var child *jsonNode
		if open == '{' {
			name, err := j.text(r, dec)
			if err != nil {
				return err
			}
			child = n.names[string(name)] // does not allocate
		} else if i < len(n.items) {
			child = n.items[i]
		}
		if err := j.value(r, s, child); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// text reads a string, or what else is no object and no array. It is good until the
// next one is read.
func (j *jsonLayout) text(r *run, dec *jsontext.Decoder) ([]byte, error) {
	raw, err := dec.ReadValue()
	if err != nil || len(raw) == 0 || raw[0] != '"' {
		return raw, err
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	// The decoder has read it, so all that may be wrong is text that is not of UTF-8, which is replaced.
	r.spare, _ = jsontext.AppendUnquote(r.spare[:0], raw)
	return r.spare, nil
}

func (j *jsonLayout) time(r *run, s *jsonState) error {
	if k := s.decoder.PeekKind(); k != '"' && k != '0' {
		return s.decoder.SkipValue() // then it lacks one
	}
	text, err := j.text(r, s.decoder)
	if err != nil {
		return err
	}
	t, wrong := j.clock.text(r, text)
	if wrong != nil {
		s.noteProblem(fmt.Errorf("time: %w", wrong))
		return nil
	}
	s.time, s.timed = t, true
	return nil
}

// noteProblem notes what is wrong with the record.
func (s *jsonState) noteProblem(err error) {
	if s.problem == nil {
		s.problem = err
	}
}

// parameter reads all values of a parameter.
func (j *jsonLayout) parameter(r *run, s *jsonState, i int) error {
	p := &j.d.parameters[i]
	if array := s.decoder.PeekKind() == '['; array != (len(p.Size) > 0) && s.decoder.PeekKind() != 'n' {
		s.filled[i] = p.Count
		s.wrongValues(r, p, r.got, errors.New("an array instead of a single value, or a single value instead of an array"))
		return s.decoder.SkipValue()
	}
	if s.decoder.PeekKind() == 'n' { // null: all of it is missing
		return s.decoder.SkipValue()
	}
	got := r.got
	if err := j.elements(r, s, p, &s.filled[i]); err != nil {
		return err
	}
	if s.filled[i] != p.Count {
		s.wrongValues(r, p, got, fmt.Errorf("%d values instead of %d", s.filled[i], p.Count))
	}
	return nil
}

// wrongValues notes that all values of a parameter cannot be read, before which so many were got of the record.
func (s *jsonState) wrongValues(r *run, p *Parameter, got int, err error) {
	r.got = got
	for i := range p.Count {
		if err := r.value(p, i, err); err != nil {
			s.noteProblem(fmt.Errorf("parameter %s: %w", p.Name, err))
			return
		}
	}
}

// elements reads one value, or those in an array.
func (j *jsonLayout) elements(r *run, s *jsonState, p *Parameter, filled *int) error {
	dec := s.decoder
	kind := dec.PeekKind()
	if kind == '[' {
		if _, err := dec.ReadToken(); err != nil {
			return err
		}
		for more(dec) {
			if err := j.elements(r, s, p, filled); err != nil {
				return err
			}
		}
		_, err := dec.ReadToken()
		return err
	}
	if *filled++; *filled > p.Count { // parameter says so
		return dec.SkipValue()
	}
	if kind == '{' {
		if err := r.value(p, *filled-1, errors.New("an object is not a value")); err != nil {
			s.noteProblem(fmt.Errorf("parameter %s: %w", p.Name, err))
		}
		return dec.SkipValue()
	}
	text, err := j.text(r, dec)
	if err != nil {
		return err
	}
	var wrong error
	switch {
	case kind == 'n':
		wrong = p.setMissing(r.values, *filled-1)
	case p.Type == wire.ParameterInteger && kind == 't':
		wrong = p.setText(r.values, *filled-1, []byte("1"))
	case p.Type == wire.ParameterInteger && kind == 'f':
		wrong = p.setText(r.values, *filled-1, []byte("0"))
	default:
		wrong = p.setText(r.values, *filled-1, text)
	}
	if wrong = r.value(p, *filled-1, wrong); wrong != nil {
		s.noteProblem(fmt.Errorf("parameter %s: %w", p.Name, wrong))
	}
	return nil
}
