// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// A clock that jumps a year forward expires nothing: neither what only looks due, nor what was due
// before and waits. When it is corrected, expiry continues.
func TestClockThatJumps(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.agree = nil // the NATS server's clock is asked
	l.keep = &wire.RetentionEntry{MaxAgeMillis: (time.Since(noon) + 30*24*time.Hour).Milliseconds()}
	l.closedTo = wire.DayOf(time.Now().AddDate(1, 0, 0))
	whole := map[wire.State]int{wire.StateCurrent: 7}
	jumped := time.Now().UTC().AddDate(1, 0, 0)
	r := l.collector()
	for range 3 {
		l.pass(r, jumped)
	}
	l.want("after the clock jumped", l.states(camera), whole)
	l.want("removals", l.waiting(r), 0)
	l.want("the clocks disagree", testutil.ToFloat64(l.metrics.clock), 1)
	if s := l.expiry(); !strings.Contains(s.Clocks, "the clocks do not agree") || s.ReportedAt.IsZero() {
		t.Errorf("the report says %+v", s)
	}

	if err := r.expireLater(t.Context(), camera, DueDay{Day: day, Reason: "expired"}, jumped); err != nil {
		t.Fatal(err)
	}
	l.pass(r, jumped)
	l.want("what was due before", l.states(camera), whole)
	l.want("removals that wait", l.waiting(r), 1)
	l.want("removals that wait for a clock", testutil.ToFloat64(l.metrics.waiting.WithLabelValues(waitClock)), 1)

	l.pass(r, time.Now().UTC()) // corrected: the day is not due yet
	l.want("after it was corrected", l.states(camera), whole)
	l.want("removals", l.waiting(r), 0)
	l.want("the clocks disagree", testutil.ToFloat64(l.metrics.clock), 0)
	l.want("the report of the clocks", l.expiry().Clocks, "")
}

// expiry is what is reported of why nothing expires.
func (l *lab) expiry() wire.ExpiryStatus {
	l.Helper()
	e, err := l.KV(wire.StatusBucket(site)).Get(l.Context(), wire.ExpiryStatusKey)
	if err != nil {
		l.Fatal(err)
	}
	s, err := wire.Decode[wire.ExpiryStatus](e.Value())
	if err != nil {
		l.Fatal(err)
	}
	return s
}

// If more is due at once than the retention allows, nothing expires, also not in steps, until maxShare is raised.
func TestMoreThanItsShare(t *testing.T) {
	l := newLab(t)
	l.fill()
	l.closedTo = wire.DayOf(now)
	d, err := manifest.Summarize(t.Context(), l.Store, site, camera, day)
	if err != nil {
		t.Fatal(err)
	}
	entry := wire.IndexEntry{}
	for i := range 10 {
		is := d
		is.Day = wire.DayOf(noon.AddDate(0, 0, i-5))
		entry.Open = append(entry.Open, is)
	}
	value, err := wire.Encode(entry)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.KV(wire.IndexBucket(site)).Put(t.Context(), camera, value); err != nil {
		t.Fatal(err)
	}
	r := l.collector()
	for i := range 5 {
		if _, err := r.findDue(t.Context(), now.Add(time.Duration(i)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	l.want("removals", l.waiting(r), 0)
	l.want("stopped instruments", testutil.ToFloat64(l.metrics.stopped), 1)
	l.want("the report", l.expiry().Stopped, []wire.StoppedExpiry{{Instrument: camera, Days: 10, SharePercent: 90, MaxShare: 10}})
	revision := l.revision(wire.ExpiryStatusKey)
	if _, err := r.findDue(t.Context(), now.Add(9*time.Hour)); err != nil {
		t.Fatal(err)
	}
	l.want("what is reported already", l.revision(wire.ExpiryStatusKey), revision)
	l.keep.MaxShare = 100
	if _, err := r.findDue(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	l.want("removals, when it was let go", l.waiting(r), 10)
	l.want("stopped instruments", testutil.ToFloat64(l.metrics.stopped), 0)
	l.want("the report", l.expiry().Count, 0)
}

func (l *lab) revision(key string) uint64 {
	l.Helper()
	e, err := l.KV(wire.StatusBucket(site)).Get(l.Context(), key)
	if err != nil {
		l.Fatal(err)
	}
	return e.Revision()
}
