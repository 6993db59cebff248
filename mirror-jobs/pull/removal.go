// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// surplus are the days that have objects which the policy removes.
type surplus struct {
	mu   sync.Mutex
	days map[string][]wire.Day // by instrument
	// takenBack are those of the objects that were retracted or purged, and did not expire.
	objects, takenBack int
}

// countTakenBack is how many of some lines were retracted or purged.
func countTakenBack(lines []plan.Line, of []int) (n int) {
	for _, i := range of {
		if lines[i].Removed() {
			n++
		}
	}
	return n
}

func (s *surplus) add(instrument string, day wire.Day, objects, takenBack int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.days == nil {
		s.days = map[string][]wire.Day{}
	}
	s.days[instrument] = append(s.days[instrument], day)
	s.objects += objects
	s.takenBack += takenBack
}

// removeSurplus removes what the policy says, once all is fetched. Errors:
// plan.SafetyStopError, of the folder.
func (p *run) removeSurplus(ctx context.Context) error {
	before, now := p.Folder.State().Removed, time.Now()
	if p.Force { // a person has reviewed what is removed
		before = nil
		if err := p.Folder.SetRemoved(nil); err != nil {
			return err
		}
	}
	if p.surplus.objects == 0 {
		return nil
	}
	held, err := p.held()
	if err != nil {
		return err
	}
	if err := p.Policy.Allow(p.surplus.objects, p.surplus.takenBack, before.Since(now), held); err != nil {
		return err
	}
	if !p.Force { // before they go: an error or a kill that ends this must not have them count for nothing
		if err := errors.Join(p.Folder.SetRemoved(before.Plus(now, p.surplus.takenBack)), p.Folder.Sync()); err != nil {
			return err
		}
	}
	for name, days := range p.surplus.days {
		known, err := p.Folder.Known(name)
		if err != nil {
			return err
		}
		stays := p.staying(name, days)
		for _, day := range days {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			lines, err := p.removeFrom(name, day, stays)
			if err != nil {
				return err
			}
			was := known.Days[day]
			was.Objects, was.Bytes = plan.Held(lines)
			known.Days[day] = was
		}
		if err := p.Folder.SetKnown(name, known); err != nil {
			return err
		}
	}
	return nil
}

// removeFrom removes the surplus of a day, and returns what is known of it then.
func (p *run) removeFrom(instrument string, day wire.Day, stays func(path string) (bool, error)) ([]plan.Line, error) {
	lines, err := p.Folder.Lines(instrument, day)
	if err != nil {
		return nil, err
	}
	for _, i := range p.Policy.Surplus(lines) {
		l := &lines[i]
		removed, err := p.Folder.Remove(instrument, &l.Entry, func() (bool, error) { return stays(l.Path) })
		if err != nil {
			return nil, err
		}
		if !removed {
			p.Logger.Info("the path of an object that is to be removed has no file, or that of another object", "instrument", instrument, "path", l.Path, "state", string(l.Is()))
			continue
		}
		p.Progress.removed(1)
		p.Logger.Info("an object is removed", "instrument", instrument, "path", l.Path, "state", string(l.Is()), "reason", l.Reason)
	}
	lines = p.Policy.Removed(lines)
	return lines, p.Folder.SetLines(instrument, day, lines)
}

// staying returns a function that says whether another object stays under the path of one that is removed from some days of an
// instrument. It reads all lists of the instrument when it is asked first, and keeps the paths of what is removed alone.
func (p *run) staying(instrument string, days []wire.Day) func(path string) (bool, error) {
	read := sync.OnceValues(func() (map[string]bool, error) {
		stays := map[string]bool{}
		err := p.eachHeld(instrument, days, func(l *plan.Line) {
			if p.Policy.Removes(l) {
				stays[l.Path] = false
			}
		})
		if err != nil {
			return nil, err
		}
		all, err := p.Folder.Days(instrument)
		if err != nil {
			return nil, err
		}
		return stays, p.eachHeld(instrument, all, func(l *plan.Line) {
			if _, is := stays[l.Path]; is && !p.Policy.Removes(l) {
				stays[l.Path] = true
			}
		})
	})
	return func(path string) (bool, error) {
		stays, err := read()
		return stays[path], err
	}
}

// eachHeld calls a function for each line of some days whose object the mirror has.
func (p *run) eachHeld(instrument string, days []wire.Day, do func(*plan.Line)) error {
	for _, day := range days {
		lines, err := p.Folder.Lines(instrument, day)
		if errors.Is(err, folder.ErrUnreadable) {
			return fmt.Errorf("%w: run once with --force", err)
		}
		if err != nil {
			return err
		}
		for i := range lines {
			if lines[i].Held {
				do(&lines[i])
			}
		}
	}
	return nil
}

// held counts the objects that the mirror holds.
func (p *run) held() (objects int, err error) {
	names, err := p.Folder.Instruments()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		known, err := p.Folder.Known(name)
		if err != nil {
			return 0, err
		}
		n, _ := known.Held()
		objects += n
	}
	return objects, nil
}
