// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/substorm/substorm/mirror-jobs/plan"
)

const (
	// readyDays wait to be noted, at most.
	readyDays = 1024
	// commitEvery is how often at most what was put is brought onto the disk.
	commitEvery = 500 * time.Millisecond
)

// committer notes what is done: first all that was put is brought onto the disk, then the
// lists say that it is held, and once these are on the disk too, the tags say that nothing is
// to be asked. So a kill at any point loses nothing, and at most makes work twice.
type committer struct {
	p *run
	// ctx bounds what is said to the other side.
	ctx context.Context
	// left are the objects that could not be had, instruments those that were acted upon in
	// full.
	left        int64
	instruments int
	err         error
	// done are instruments whose lists are written.
	done []*instrument
}

// run notes days until there are no more, also when the run failed: what came is not to be
// fetched again.
func (c *committer) run() {
	for open := true; open; {
		var days []*day
		days, open = c.take()
		if err := c.commit(days); err != nil && c.err == nil {
			c.err = err
		}
	}
	c.err = errors.Join(c.err, c.commit(nil))
}

// take waits for days that are ready, and takes those that come within a while.
func (c *committer) take() (days []*day, open bool) {
	d, open := <-c.p.ready
	if !open {
		return nil, false
	}
	days = append(days, d)
	for end := time.After(commitEvery); len(days) < readyDays; {
		select {
		case d, open := <-c.p.ready:
			if !open {
				return days, false
			}
			days = append(days, d)
		case <-end:
			return days, true
		}
	}
	return days, true
}

// commit notes some days.
func (c *committer) commit(days []*day) error {
	if len(days)+len(c.done) > 0 {
		if err := c.p.Folder.Sync(); err != nil {
			return err
		}
	}
	for _, in := range c.done {
		if err := c.instrument(in); err != nil {
			return err
		}
	}
	for _, d := range days {
		if err := c.p.Folder.SetLines(d.in.Instrument, d.day, d.lines); err != nil {
			return err
		}
	}
	unconfirmed := c.p.confirmDays(c.ctx, days)
	for _, d := range days {
		c.day(d, !unconfirmed)
	}
	c.done = c.p.takeFinished()
	return nil
}

// day notes one whose lines are written. Not confirmed: the other side does not know yet what is here of it.
func (c *committer) day(d *day, confirmed bool) {
	c.left += int64(d.failed)
	ok := d.whole() && confirmed
	if surplus := c.p.Policy.Surplus(d.lines); len(surplus) > 0 {
		c.p.surplus.add(d.in.Instrument, d.day, len(surplus), countTakenBack(d.lines, surplus))
		ok = false // until they are removed
	}
	d.in.note(d, ok)
	if d.in.endDay(ok) {
		c.p.finish(d.in)
	}
}

// whole says whether all came that the list of a day has and that is selected.
func (d *day) whole() bool { return d.failed+d.again == 0 && d.tag != "" }

// note keeps in mind what is known of a day.
func (i *instrument) note(d *day, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	known := plan.KnownDay{}
	known.Objects, known.Bytes = plan.Held(d.lines)
	if ok {
		known.Tag = d.tag
	}
	i.known.Days[d.day] = known
}

// instrument writes the tags of an instrument whose days are all done as far as they can be.
func (c *committer) instrument(in *instrument) error {
	if in.failed {
		c.p.Folder.SetInstrument(in.Instrument, "")
		return c.p.Folder.SetKnown(in.Instrument, in.known)
	}
	c.instruments++
	c.p.Folder.SetInstrument(in.Instrument, in.Tag)
	maps.Copy(in.known.Months, in.months)
	return c.p.Folder.SetKnown(in.Instrument, in.known)
}
