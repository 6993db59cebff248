// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"time"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

// chosen is an object of a day that the client asks for and may have.
type chosen struct {
	record *wire.Record
	path   string
	// send: it goes into the bundle. Else the client has it, or it is not current.
	send bool
	// lacks: the token counts it, and the client does not have it yet.
	lacks bool
	// damaged and hidden say why it was not sent: its bytes are not those that were
	// received; it is under embargo by now.
	damaged, hidden bool
}

// choose returns what is asked for of a day.
func (s *sending) choose(day *catalog.Day, d *due) []chosen {
	all := make([]chosen, 0, len(day.Records))
	newer := s.unsentSince(day, d)
	for i, r := range day.Records {
		if !s.maySend(r) {
			continue
		}
		path, current := day.Path(i), r.State == wire.StateCurrent
		wanted := !r.ReceivedAt.Before(newer) || len(d.lacks) > 0 && d.lacks[object(path, r)]
		all = append(all, chosen{record: r, path: path, send: wanted && current, lacks: wanted && (current || !d.changed)})
	}
	return all
}

// maySend reports whether the client asks for an object and may have it.
func (s *sending) maySend(r *wire.Record) bool {
	return s.todo.wants(r) && s.v.Sees(s.in, r.ObservedEnd())
}

// day sends the objects of a day that are due, and then the list of all objects of the day.
// Objects that are left out are removed from its sum if the token cannot name them.
func (s *sending) day(d due, now *sum) error {
	day, err := s.cfg.Catalog.Day(s.v.Context(), s.in.Instrument, d.Day)
	if err != nil {
		return err
	}
	// It may be another since the days were looked at, hours ago.
	is := s.sumOf(day, d.planned, time.Time{})
	if d.changed = d.changed || d.had.count > 0 && !is.same(d.had); d.changed {
		*now = is
	}
	all := s.choose(day, &d)
	before := s.end.Objects
	if err := s.objects(day, all); err != nil {
		return err
	}
	for _, c := range all {
		if c.lacks {
			s.noteLeftOut(d.number, object(c.path, c.record), now)
		}
	}
	if !d.changed && s.end.Objects == before || len(all) == 0 && d.had.count == 0 {
		return nil
	}
	return s.list(head{Format: format, Site: s.cfg.Site, Instrument: s.in.Instrument, Day: d.Day, Rights: s.in.Rights}, all)
}

// objects sends the chosen objects of a day, as far as they are available.
func (s *sending) objects(day *catalog.Day, all []chosen) error {
	ctx, cancel := context.WithCancel(s.v.Context())
	ahead := newReader(ctx, s.cfg.Store)
	go ahead.readAll(all)
	defer func() {
		cancel()
		ahead.drain()
	}()
	gone := isRetracted{day: day}
	for o := range ahead.objects {
		if err := s.object(o, &gone); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// object sends one that may be sent still, and is whole; of another it notes why not.
func (s *sending) object(o *ahead, gone *isRetracted) error {
	data, err := o.wait(s.v.Context())
	if err == nil {
		defer o.release()
	}
	in, over := s.v.Still(s.in.Instrument)
	if over != nil {
		return over
	}
	s.in = in
	is, failed := gone.findRemoval(s.v.Context(), s.cfg.Catalog, o.record)
	switch {
	case failed != nil:
		return failed
	case is != nil:
		o.record = is
	case !s.v.Sees(s.in, o.record.ObservedEnd()):
		o.hidden = true
	case isDamaged(err):
		s.cfg.Logger.Warn("a bundle lacks an object that is damaged in the store", "instrument", in.Instrument, "path", o.path, "error", err)
		s.v.Damaged(in.Instrument, err)
		s.end.Damaged++
		o.damaged = true
	case err != nil:
		return err
	default:
		o.lacks = false
		return s.write(o, data)
	}
	return nil
}

// write writes an object, and counts it. Data is nil of one that is streamed.
func (s *sending) write(o *ahead, data []byte) error {
	r := o.record
	h := s.header(s.in.Instrument+"/"+o.path, r.Size, r.ReceivedAt)
	if s.ids {
		h.PAXRecords = map[string]string{mirrorindex.PAXID: r.ID}
	}
	if err := s.tar.WriteHeader(h); err != nil {
		return err
	}
	var err error
	if data != nil {
		_, err = s.tar.Write(data)
	} else {
		err = o.stream(s.v.Context(), s.tar)
	}
	s.end.Objects++
	s.end.Bytes += r.Size
	s.v.Share(s.in.Instrument, r.Size)
	return err
}

// noteLeftOut notes that an object is not in the bundle, for the next one. The token names some;
// of more than these it does not say that they were sent, and their days come whole again.
func (s *sending) noteLeftOut(day dayNumber, object uint64, now *sum) {
	if s.leftOut++; s.leftOut > maxLacks {
		now.remove(object)
		return
	}
	s.left = append(s.left, lack{day, object})
}

// isRetracted reports which objects of a day are retracted while it is being sent.
type isRetracted struct {
	// day as it was when next was set.
	day  *catalog.Day
	next time.Time
	by   map[string]*wire.Record // by ID
}

// lookShare is how many times longer than a look at a day took the next one waits: a look costs
// nothing while the catalog has the day, and must not cost much otherwise.
const lookShare = 20

// findRemoval returns what became of an object that was retracted or purged; nil of others.
func (t *isRetracted) findRemoval(ctx context.Context, from Catalog, r *wire.Record) (*wire.Record, error) {
	begun := time.Now()
	if begun.Before(t.next) {
		return t.by[r.ID], nil
	}
	day, err := from.Day(ctx, t.day.Instrument, t.day.Day)
	if err != nil {
		return nil, err
	}
	if day != t.day {
		t.day, t.by = day, map[string]*wire.Record{}
		for _, r := range day.Records {
			if r.State == wire.StateRetracted || r.State == wire.StatePurged {
				t.by[r.ID] = r
			}
		}
	}
	now := time.Now()
	t.next = now.Add(lookShare * now.Sub(begun))
	return t.by[r.ID], nil
}
