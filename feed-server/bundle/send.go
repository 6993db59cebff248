// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/substorm/substorm/feed-server/door"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// writeBuffer is how much is written to a client at a time.
	writeBuffer = 64 << 10
	// folder has what a bundle says of itself, below the Site's.
	folder = "bundle.d/"
	format = 1
)

type writer = io.Writer

// End is the last file of a bundle: one without it is not whole.
type End struct {
	Format int `json:"format"`
	// Objects and Bytes that the bundle holds. Damaged are those that it should: their
	// bytes in the store are not those that were received.
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	Damaged int64 `json:"damaged,omitempty"`
	// Since asks, as ?since=, for what changed after this bundle. Empty: that would be
	// too long, ask for a shorter time or for fewer instruments.
	Since string `json:"since"`
}

// sending is a bundle on its way.
type sending struct {
	*Bundles
	v    *door.Visit
	todo plan
	tar  *tar.Writer
	end  End
	next token
}

// send sends a bundle. Errors are those of the store, of the catalog, and door.ErrClient.
func (b *Bundles) send(v *door.Visit, todo plan, compressed bool) error {
	buffer := bufio.NewWriterSize(door.Paced{Visit: v}, writeBuffer)
	s := &sending{Bundles: b, v: v, todo: todo, end: End{Format: format}, next: token{question: todo.digest()}}
	if !compressed {
		s.tar = tar.NewWriter(buffer)
		if err := s.all(); err != nil {
			return err
		}
		return buffer.Flush()
	}
	z, err := newEncoder(buffer)
	if err != nil {
		return err
	}
	defer z.Close()
	s.tar = tar.NewWriter(z)
	if err := s.all(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return buffer.Flush()
}

func (s *sending) all() error {
	if err := s.file("README.txt", s.readme()); err != nil {
		return err
	}
	for i := range s.todo.instruments {
		if err := s.instrument(i); err != nil {
			return err
		}
	}
	s.end.Since = s.next.String()
	if err := s.file(folder+"end.json", append(marshal(s.end), '\n')); err != nil {
		return err
	}
	return s.tar.Close()
}

// file writes one of the bundle's own.
func (s *sending) file(name string, data []byte) error {
	if err := s.tar.WriteHeader(s.header(name, int64(len(data)), time.Unix(0, 0))); err != nil {
		return err
	}
	_, err := s.tar.Write(data)
	return err
}

func (s *sending) header(name string, size int64, at time.Time) *tar.Header {
	return &tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: s.cfg.Site + "/" + name, Size: size, Mode: 0o644, ModTime: at.Truncate(time.Second)}
}

// instrument sends what one instrument has, day by day.
func (s *sending) instrument(i int) error {
	in := s.todo.instruments[i]
	hidden := s.v.Embargoed(in)
	var was, is spans
	if s.todo.again {
		was = s.todo.since.all[i]
	}
	daily := firstDaily(s.v.Now)
	days := s.todo.days[i]
	for len(days) > 0 {
		old, known := was.of(days[0].number)
		n := 1
		for known && n < len(days) && days[n].number < old.to {
			n++
		}
		now, err := s.days(in, days[:n], old.sum, known && !hidden, known && old.to-old.from > 1)
		if err != nil {
			return err
		}
		for j, sum := range now {
			if hidden {
				sum.files = 0
			}
			is = is.add(span{days[j].number, days[j].number + 1, sum}, daily)
		}
		days = days[n:]
	}
	s.next.all = append(s.next.all, is)
	return nil
}

// days sends what changed in some days that the token has one sum of, or all of it, and
// returns their sums.
func (s *sending) days(in wire.InstrumentEntry, days []planned, old sum, filesTell, month bool) ([]sum, error) {
	files := sum{}
	for _, d := range days {
		files = files.plus(sum{files: filesOf(d.RootDay)})
	}
	if filesTell && files.files == old.files {
		// Nothing of them changed, so nothing of them is read: a month's sum is kept as
		// that of its first day, as sums add up.
		all := make([]sum, len(days))
		all[0] = old
		return all, nil
	}
	var all []sum
	var total sum
	for _, d := range days {
		now, err := s.sumOf(in, d, time.Time{})
		if err != nil {
			return nil, err
		}
		all, total = append(all, now), total.plus(now)
	}
	if old.count > 0 && total.same(old) {
		return all, nil
	}
	for _, d := range days {
		var after time.Time
		if old.count > 0 && !month {
			last := d.number.start().Add(time.Duration(old.last) + 1)
			before, err := s.sumOf(in, d, last)
			if err != nil {
				return nil, err
			}
			if before.same(old) {
				after = last
			}
		}
		if err := s.day(in, d, after); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// sumOf sums up what is asked for of a day and received before a time, if that is set.
func (s *sending) sumOf(in wire.InstrumentEntry, d planned, before time.Time) (sum, error) {
	day, err := s.cfg.Catalog.Day(s.v.Context(), in.Instrument, d.Day)
	if err != nil {
		return sum{}, err
	}
	now := sum{files: filesOf(d.RootDay)}
	for i, r := range day.Records {
		if s.gives(in, r) && r.State == wire.StateCurrent && (before.IsZero() || r.ReceivedAt.Before(before)) {
			now.add(day.Path(i), r, d.number)
		}
	}
	return now, nil
}

// gives says whether an object is asked for by one who may have it.
func (s *sending) gives(in wire.InstrumentEntry, r *wire.Record) bool {
	return s.todo.wants(r) && s.v.Sees(in, door.ObservedAt(r))
}

// day sends the objects of a day that were received from a time on, and then what they
// are.
func (s *sending) day(in wire.InstrumentEntry, d planned, from time.Time) error {
	day, err := s.cfg.Catalog.Day(s.v.Context(), in.Instrument, d.Day)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(s.v.Context())
	defer cancel()
	ahead := newReader(ctx, s.cfg.Store)
	go func() {
		defer ahead.end()
		for i, r := range day.Records {
			if r.ReceivedAt.Before(from) || !s.gives(in, r) || r.State == wire.StateSuperseded {
				continue
			}
			if !ahead.read(r, day.Path(i)) {
				return
			}
		}
	}()
	listed := list{head: head{Format: format, Site: s.cfg.Site, Instrument: in.Instrument, Day: d.Day, Rights: in.Rights}}
	for o := range ahead.objects {
		l := newLine(o.path, o.record)
		if o.record.State == wire.StateCurrent {
			if err := s.object(in, o, &l); err != nil {
				cancel()
				ahead.drain()
				return err
			}
		}
		if listed.add(l); listed.Len() >= listSize {
			if err := s.list(&listed); err != nil {
				cancel()
				ahead.drain()
				return err
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.list(&listed)
}

// list writes a list that has any lines, and empties it.
func (s *sending) list(l *list) error {
	if l.Len() == 0 {
		return nil
	}
	l.files++
	name := fmt.Sprintf("%s%s/%s", folder, l.head.Instrument, l.head.Day)
	if l.files > 1 {
		name += fmt.Sprintf("-%d", l.files)
	}
	err := s.file(name+".jsonl", l.Bytes())
	l.Reset()
	return err
}

// object sends one, and counts it.
func (s *sending) object(in wire.InstrumentEntry, o *ahead, l *line) error {
	data, err := o.wait(s.v.Context())
	switch {
	case isDamaged(err):
		s.cfg.Logger.Warn("a bundle lacks an object that is damaged in the store", "instrument", in.Instrument, "path", o.path, "error", err)
		s.v.Damaged(in.Instrument, err)
		s.end.Damaged++
		l.Damaged = true
		return nil
	case err != nil:
		return err
	}
	defer o.release()
	r := o.record
	if err := s.tar.WriteHeader(s.header(in.Instrument+"/"+o.path, r.Size, r.ReceivedAt)); err != nil {
		return err
	}
	if data != nil {
		_, err = s.tar.Write(data)
	} else {
		err = o.stream(s.v.Context(), s.tar)
	}
	s.end.Objects++
	s.end.Bytes += r.Size
	s.v.Share(in.Instrument, r.Size)
	return err
}

// listSize is how large a list grows before another is begun, in bytes.
const listSize = 4 << 20

// list is what a day's objects are, in one file or several.
type list struct {
	bytes.Buffer
	head  head
	files int
}

func (l *list) add(is line) {
	if l.Len() == 0 {
		_, _ = l.Write(append(marshal(l.head), '\n'))
	}
	_, _ = l.Write(append(marshal(is), '\n'))
}

// head is the first line of a list, the rights those of what it lists.
type head struct {
	Format     int               `json:"format"`
	Site       string            `json:"site"`
	Instrument string            `json:"instrument"`
	Day        wire.Day          `json:"day"`
	Rights     *wire.RightsEntry `json:"rights,omitempty"`
}

// line is one object of a list.
type line struct {
	Path string `json:"path"`
	// State is absent of what is current.
	State        wire.State        `json:"state,omitempty"`
	Reason       string            `json:"reason,omitempty"`
	Damaged      bool              `json:"damaged,omitempty"`
	Size         int64             `json:"size"`
	Digest       wire.Digest       `json:"sha256"`
	MediaType    string            `json:"mediaType,omitempty"`
	Version      int               `json:"version,omitempty"`
	ObservedFrom *time.Time        `json:"observedFrom,omitempty"`
	ObservedTo   *time.Time        `json:"observedTo,omitempty"`
	ReceivedAt   time.Time         `json:"receivedAt"`
	TimeSource   wire.TimeSource   `json:"timeSource"`
	Completeness wire.Completeness `json:"completeness,omitempty"`
}

func newLine(path string, r *wire.Record) line {
	l := line{
		Path: path, Size: r.Size, Digest: r.Digest, MediaType: r.MediaType, Version: r.Version,
		ObservedFrom: r.ObservedFrom, ObservedTo: r.ObservedTo, ReceivedAt: r.ReceivedAt, TimeSource: r.TimeSource, Completeness: r.Completeness,
	}
	if r.State != wire.StateCurrent {
		l.State, l.Reason = r.State, r.Reason
	}
	return l
}

// marshal writes what can always be written: text, numbers and times.
func marshal(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}
