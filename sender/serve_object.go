// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender/queue"
)

// If there is another server to try, one that does not accept within quickConnect, or usualConnects
// times the longest recent accept, is passed over. While no server accepts, the limit doubles with
// each failure.
const (
	quickConnect  = 700 * time.Millisecond
	usualConnects = 3
)

// connectWithin is how long a server may take to accept.
func (s *keeper) connectWithin() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.cfg.Addresses) == 1 {
		return 0
	}
	return min(max(quickConnect, usualConnects*s.dialed)<<min(s.schedule.failures, 10), s.cfg.ConnectTimeout)
}

var errDamaged = errors.New("it has other bytes than were queued: the disk or another program changed it")

// send tries to send an entry, once to each server.
func (s *keeper) send(ctx context.Context, e queue.Entry, cancel context.CancelCauseFunc) {
	var damaged atomic.Bool
	it := item{
		name: e.Name, size: e.Size, connectWithin: s.connectWithin(),
		open: func() (io.ReadCloser, error) { return s.queue.Open(e) },
		check: func(digest wire.Digest) error {
			if e.Matches(digest) {
				return nil
			}
			damaged.Store(true)
			return errDamaged
		},
	}
	if s.web != nil {
		whole, err := s.queue.Whole(e)
		if err != nil {
			s.unsent(e, Result{Name: e.Name, Outcome: Unsent, Error: fmt.Sprintf("its name cannot be read: %v", err)}, nil)
			return
		}
		it.sentName, it.resumption = s.cfg.HTTP.nameOf(cmp.Or(whole, unescapeName(e.Name))), s.resumption(e)
	}
	var result Result
	if s.pipes != nil && e.Size > wire.MaxPrefixed {
		result = Result{Name: e.Name, Outcome: Refused, Cause: wire.CauseObjectTooLarge, Error: "2 GiB and more do not fit the framing LengthPrefixed"}
	} else {
		result = s.delivery.deliver(ctx, it)
	}
	final := s.received
	switch {
	case result.Outcome == Received:
	case ctx.Err() != nil:
		s.updateSchedule(func() { s.schedule.done(e); s.schedule.insert(e) })
		return
	case damaged.Load():
		final = s.damaged
	case result.Cause == wire.CauseObjectTooLarge, result.Outcome == Refused && result.Cause == wire.CauseNameConflict:
		final = s.refused
	case result.Outcome == Unsent && result.Server == "":
		final = s.unreadable
	default:
		s.unsent(e, result, it.resumption)
		return
	}
	// First the report: what is not in the queue any more is in there.
	if err := s.report.write(result); err != nil {
		cancel(err)
		return
	}
	final(e, result)
}

// updateSchedule changes the schedule for an entry that is not on its way any more.
func (s *keeper) updateSchedule(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.noteSpent()
	s.wake()
}

func (s *keeper) received(e queue.Entry, result Result) {
	if err := s.queue.Done(e); err != nil { // sent again after a restart, which does no harm
		s.log.Error("a file with a receipt cannot be removed from the queue", "entry", e.File(), "error", err)
	}
	s.updateSchedule(func() {
		if s.schedule.failures > 1 {
			s.log.Info("objects are received again", "server", result.Server)
		}
		s.sent++
		s.schedule.received(e)
	})
}

func (s *keeper) damaged(e queue.Entry, result Result) { s.putAside(e, queue.Damaged, result) }
func (s *keeper) refused(e queue.Entry, result Result) { s.putAside(e, queue.Refused, result) }

// putAside takes an entry out that no try can help.
func (s *keeper) putAside(e queue.Entry, folder string, result Result) {
	err := s.queue.SetAside(e, folder, result.Error)
	s.log.Error("set aside: put it back into objects once the cause is fixed", "entry", folder+"/"+e.File(), "why", result.Error, "error", err)
	s.updateSchedule(func() {
		s.setAside++
		s.schedule.aside(e, err != nil)
	})
}

// unreadable takes an entry that cannot be read out of the schedule and leaves it to the operator
// who reads the log.
func (s *keeper) unreadable(e queue.Entry, result Result) {
	f, err := s.queue.Open(e)
	if err == nil {
		_ = f.Close()
	}
	gone := errors.Is(err, fs.ErrNotExist)
	s.log.Error("an object of the queue cannot be read", "entry", e.File(), "gone", gone, "error", result.Error)
	s.updateSchedule(func() {
		s.setAside++
		s.schedule.aside(e, !gone)
	})
}

func (s *keeper) unsent(e queue.Entry, result Result, half *resumption) {
	s.troubles.say(string(result.Outcome)+string(result.Cause), fmt.Sprintf("not received, stays in the queue: %s: %s (%s)", e.Name, result.Error, result.Server))
	s.updateSchedule(func() {
		if result.progress {
			s.schedule.noteProgress(e, half.most(), time.Now())
		} else {
			s.schedule.postpone(e, time.Now())
		}
	})
}

// resumption is what is known of an entry's upload, also from before a restart.
func (s *keeper) resumption(e queue.Entry) *resumption {
	text, err := s.queue.Noted(e)
	if err != nil {
		s.log.Warn("cannot read the state of an upload; starting it again", "entry", e.File(), "error", err)
	}
	return newResumption(text, func(text string) error { return s.queue.Note(e, text) })
}

// queueName is the name in the queue of a file at rel: over HTTP the path gives the object's name, and must be recoverable. If
// the name is too long for the name of a file, it gets a short name, and is kept whole beside it.
func (c *HTTPConfig) queueName(rel string) (name, whole string) {
	if c == nil {
		return rel, ""
	}
	sent := c.nameOf(rel)
	switch escaped := escapeName(sent); {
	case sent == "":
		return rel, ""
	case len(escaped) > queue.MaxName:
		return shortName(sent), sent
	default:
		return escaped, ""
	}
}

func (s *keeper) noteRetry(it item, address string, err error) {
	s.troubles.say(address+err.Error(), fmt.Sprintf("%s: %s: %v: trying the next server", address, it.name, err))
}

// queueInput queues what the command line names.
func (s *keeper) queueInput(ctx context.Context) error {
	if len(s.cfg.Paths) == 0 {
		return nil
	}
	var rest leftovers
	defer rest.remove()
	in := input{paths: s.cfg.Paths, lines: s.cfg.Lines, stdin: s.cfg.Stdin, blank: func() {}, temporary: rest.add}
	if err := in.check(); err != nil {
		return err
	}
	if err := s.cfg.confirm(in); err != nil {
		return err
	}
	sources, done := make(chan queue.Source), make(chan error, 1)
	go func() {
		defer close(sources)
		for it, err := range in.items() {
			if err != nil {
				done <- err
				return
			}
			name, whole := s.nameOfItem(it)
			select {
			case sources <- queue.Source{Name: name, Whole: whole, Observed: time.Now(), Open: it.open}:
			case <-ctx.Done():
				done <- nil
				return
			}
		}
		done <- nil
	}()
	for {
		batch := s.batch(ctx, sources)
		if batch == nil {
			return awaitInput(ctx, done)
		}
		entries, err := s.queue.Add(batch...)
		s.add(entries)
		if err != nil {
			return err
		}
	}
}

func (s *keeper) nameOfItem(it item) (name, whole string) {
	if s.web != nil && it.rel != "" {
		return s.cfg.HTTP.queueName(it.rel)
	}
	return it.name, ""
}

// awaitInput waits for the end of the input, but not for a read that never ends.
func awaitInput(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return nil
	}
}

// batch takes what has come, at least one; nil at the end.
func (s *keeper) batch(ctx context.Context, sources <-chan queue.Source) []queue.Source {
	var batch []queue.Source
	select {
	case one, ok := <-sources:
		if !ok {
			return nil
		}
		batch = append(batch, one)
	case <-ctx.Done():
		return nil
	}
	for len(batch) < batchFiles {
		select {
		case one, ok := <-sources:
			if !ok {
				return batch
			}
			batch = append(batch, one)
		default:
			return batch
		}
	}
	return batch
}
