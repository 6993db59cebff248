// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// A run that compares all finds that the partner lost the copies of objects that expired here: the run says so, and the ledger does not
// count them from then on, whatever runs follow. Copies of such objects that the partner still has stay confirmed.
func TestLostForGood(t *testing.T) {
	tamper(t, func(t *testing.T, l *tampered) {
		l.entry.VerifyPercent = 100
		all, _ := l.days(2)
		l.push(4)
		for i := range 2 { // all of a day
			l.become(&all[i], wire.StatePurged, "older than 30 days", expired)
		}
		l.force = true
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		if has := l.mirrored("2015-03-17"); has.Objects != 2 {
			t.Errorf("all is there, and the ledger says %+v", has)
		}
		l.lose("allsky-1/00.jpg")
		l.lose("allsky-1/02.jpg")
		var p *push.Problem
		if err := l.run(); !errors.As(err, &p) || p.Reason != wire.MirrorReasonDigestMismatch || !errors.Is(err, push.ErrLost) || !strings.Contains(err.Error(), `: 1, as "allsky-1/00.jpg"`) {
			t.Errorf("a run with --force: %v", err)
		}
		check := func(run string) {
			t.Helper()
			if has := l.mirrored("2015-03-17"); has.Objects != 1 || has.Digest != all[1].Digest {
				t.Errorf("the ledger after a run %s: %+v", run, has)
			}
		}
		check("with --force")
		l.force = false
		l.push(0)
		check("by the schedule")
		l.lose("allsky-1/01.jpg")
		l.verifyOnly = true
		if err := l.run(); !errors.Is(err, push.ErrLost) || !strings.Contains(err.Error(), ": 1, as") {
			t.Errorf("a run that verifies: %v", err)
		}
		if has := l.mirrored("2015-03-17"); has.Objects != 0 {
			t.Errorf("the ledger after a run that verifies: %+v", has)
		}
		if err := l.run(); err != nil {
			t.Errorf("no run goes on to owe what none can bring: %v", err)
		}
	})
}

// The partner's folder was emptied: the run that finds it brings what is here, and says what it cannot bring.
func TestEmptiedForGood(t *testing.T) {
	tamper(t, func(t *testing.T, l *tampered) {
		l.entry.VerifyPercent = 5
		all, want := l.days(5)
		l.push(10)
		for i := range 5 {
			l.become(&all[i], wire.StatePurged, "older than 30 days", expired)
		}
		if err := l.run(); err != nil {
			t.Fatal(err)
		}
		for path := range want {
			l.lose(path)
		}
		if err := l.run(); !errors.Is(err, push.ErrLost) || !strings.Contains(err.Error(), ": 5, as") {
			t.Errorf("%v", err)
		}
		if has := l.mirrored("2015-03-17"); has.Objects != 0 {
			t.Errorf("the ledger of the day that expired: %+v", has)
		}
		if has := l.mirrored("2015-03-18"); has.Objects != 5 || len(l.has()) != 5 {
			t.Errorf("the ledger of the other day: %+v, and there are %d", has, len(l.has()))
		}
		l.push(0)
	})
}
