// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// ErrLost: copies are lost here, and no run fetches them again.
var ErrLost = errors.New("copies are lost here, and are not fetched again, because the other side does not give their objects any more or because they are not selected")

// lost counts the copies that a run with Force found to be lost, and that it cannot fetch again.
type lost struct {
	objects atomic.Int64
	once    sync.Once
	first   string
}

// err names the first of them; nil: there are none.
func (l *lost) err() error {
	n := l.objects.Load()
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d, as %s: restore their files from another copy, select them again, or have the lists forget them by --force --accept-loss", ErrLost, n, l.first)
}

// checkFile compares the file of a line. A copy that is lost, that the policy keeps and that is not fetched again, since it cannot be or is not selected, stays in the list as one that
// should be here, so that each such run and `mirror verify` name it, until a run accepts the loss.
func (p *run) checkFile(d *day, l *plan.Line) {
	was := l.Held
	l.Lost = false
	if l.Held = p.isHere(d.in.Instrument, l); l.Held || !was || !isGivenNoMore(l) && (l.Gone || d.in.Selects(&l.Entry)) || p.Policy.Removes(l) {
		return
	}
	if p.AcceptLoss {
		p.log.Add(slog.LevelWarn, "copies are lost here and are forgotten", "instrument", d.in.Instrument, "path", l.Path, "id", l.ID)
		return
	}
	l.Held, l.Lost = true, true
	p.log.Add(slog.LevelError, "copies are lost here, and are not fetched again: the other side does not give their objects any more, or they are not selected",
		"instrument", d.in.Instrument, "path", l.Path, "id", l.ID)
	p.lost.once.Do(func() { p.lost.first = fmt.Sprintf("%s/%s of %s", d.in.Instrument, l.Path, d.day) })
	p.lost.objects.Add(1)
}

// isGivenNoMore says whether the other side does not give the object of a line any more, under whatever path.
func isGivenNoMore(l *plan.Line) bool {
	if l.Gone {
		return !l.Moved
	}
	return l.Is() != wire.StateCurrent && l.Is() != wire.StateSuperseded
}

// isHere says whether the mirror has the bytes of a line. If the other side does not give its object any more, the bytes alone count:
// it cannot be fetched again for its time, and a file that should be gone is to be found.
func (p *run) isHere(instrument string, l *plan.Line) bool {
	if l.Gone || l.Is() != wire.StateCurrent && l.Is() != wire.StateSuperseded {
		return p.Folder.HasBytes(instrument, &l.Entry)
	}
	return l.Held && p.Folder.Has(instrument, &l.Entry)
}
