// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

func TestNoticeSubjects(t *testing.T) {
	for _, backfill := range []bool{false, true} {
		n := wire.Notice{Site: "hub", Instrument: "mag", Record: wire.Record{Backfill: backfill}}
		site, instrument, is, err := wire.ParseNoticeSubject(n.Subject())
		if err != nil || site != "hub" || instrument != "mag" || is != backfill {
			t.Errorf("%s is of site %q, instrument %q, backfill %v: %v", n.Subject(), site, instrument, is, err)
		}
	}
	for _, subject := range []string{"", "notice.hub", "notice.hub.", "notice..mag", "notice.hub.mag.", "notice.hub.mag.late", "notice.hub.mag.backfill.x",
		"notice.hub..backfill", "obs.hub.mag.backfill"} {
		if _, _, _, err := wire.ParseNoticeSubject(subject); err == nil {
			t.Errorf("%q passes for the subject of notices", subject)
		}
	}
}

// An object that came later than lateAfter after the end of its observation is late. If
// no observation time is known, or it lies ahead of the receipt, it is not.
func TestIsLate(t *testing.T) {
	received := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	before := func(d time.Duration) *time.Time { at := received.Add(-d); return &at }
	for name, c := range map[string]struct {
		from, to *time.Time
		late     bool
	}{
		"no observation time":            {nil, nil, false},
		"in time":                        {before(2 * time.Hour), before(time.Hour), false},
		"later":                          {before(2 * time.Hour), before(time.Hour + 1), true},
		"the end is not known":           {before(time.Hour + 1), nil, true},
		"the beginning is not known":     {nil, before(time.Hour + 1), true},
		"by the sender's clock, to come": {before(-time.Hour), before(-2 * time.Hour), false},
	} {
		r := wire.Record{ReceivedAt: received, ObservedFrom: c.from, ObservedTo: c.to}
		if late := r.IsLate(received, time.Hour); late != c.late {
			t.Errorf("%s: late is %v", name, late)
		}
	}
	// An import says itself when its files came: they were modified long before.
	if r := (wire.Record{ReceivedAt: received}); !r.IsLate(received.Add(time.Hour+1), time.Hour) || r.IsLate(received.Add(time.Hour), time.Hour) {
		t.Error("by when it came")
	}
}
