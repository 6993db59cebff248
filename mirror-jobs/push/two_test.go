// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// interrupted does something once, when the run has delivered something and not noted it yet.
type interrupted struct {
	push.Mover
	do func()
}

func (m *interrupted) Deliver(ctx context.Context, files []push.File, anew bool, ended func(int, error)) error {
	err := m.Mover.Deliver(ctx, files, anew, ended)
	if do := m.do; do != nil {
		m.do = nil
		do()
	}
	return err
}

// A run finds that a copy is missing while another one brings something of the same day: the other one does not confirm that day, and
// the run after both mends it. The other run's confirmation of another day of the month stays.
func TestTwoRuns(t *testing.T) {
	tamper(t, func(t *testing.T, l *tampered) {
		l.entry.VerifyPercent = 0
		all, want := l.days(2)
		l.push(4)
		l.lose("allsky-1/00.jpg")
		today := l.Put(archivetest.Camera, "today.jpg", "today", at(storm.Add(time.Hour)))
		next := l.Put(archivetest.Camera, "next.jpg", "next", at(storm.AddDate(0, 0, 1).Add(time.Hour)))
		l.Wait(today)
		l.Wait(next)
		mover := l.mover
		l.mover = &interrupted{mover, func() {
			other := *l.lab
			other.mover, other.verifyOnly = mover, true
			if err := other.run(); !errors.Is(err, push.ErrOwed) || other.last.Differing() != 1 {
				t.Errorf("the other run: %v, %d differ", err, other.last.Differing())
			}
		}}
		if err := l.run(); !errors.Is(err, push.ErrOwed) {
			t.Errorf("a copy is missing, and the run says %v", err)
		}
		if has := l.mirrored("2015-03-17"); has.Digest == all[0].Digest.Plus(all[1].Digest).Plus(today.Digest) {
			t.Errorf("the ledger says that the partner has what another run found missing: %+v", has)
		}
		if has := l.mirrored("2015-03-18"); has.Objects != 3 {
			t.Errorf("ledger of another day: %+v", has)
		}
		l.mover = mover
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		want["allsky-1/today.jpg"], want["allsky-1/next.jpg"] = "today", "next"
		l.want("mended", want)
		if has := l.mirrored(wire.DayOf(storm)); has.Objects != 3 {
			t.Errorf("ledger: %+v", has)
		}
	})
}
