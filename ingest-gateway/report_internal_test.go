// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// TestReportsWait: where a gateway gathers, the report of an instrument waits for more datagrams while nothing else is new, for ten seconds or
// half of the cadence.
func TestReportsWait(t *testing.T) {
	const day = wire.Day("2026-11-28")
	reported := time.Unix(1_763_726_400, 0)
	before := wire.InstrumentStatus{ReportedAt: reported, Day: day, Objects: 3, Datagrams: 7}
	for _, c := range []struct {
		name    string
		before  wire.InstrumentStatus
		own     wire.Totals
		day     wire.Day
		cadence time.Duration
		after   time.Duration
		want    bool
	}{
		{"more datagrams", before, wire.Totals{Objects: 3, Datagrams: 8}, day, time.Minute, 9 * time.Second, true},
		{"for ten seconds", before, wire.Totals{Objects: 3, Datagrams: 17}, day, time.Minute, 10 * time.Second, false},
		{"half of the cadence", before, wire.Totals{Objects: 3, Datagrams: 9}, day, 4 * time.Second, 2 * time.Second, false},
		{"the first", wire.InstrumentStatus{}, wire.Totals{Datagrams: 1}, day, time.Minute, 0, false},
		{"an object too", before, wire.Totals{Objects: 4, Datagrams: 8}, day, time.Minute, time.Second, false},
		{"no datagram", before, wire.Totals{Objects: 3, Datagrams: 7}, day, time.Minute, time.Second, false},
		{"another day", before, wire.Totals{Datagrams: 8}, "2026-11-29", time.Minute, time.Second, false},
	} {
		if got := waits(c.before, c.own, c.day, c.cadence, reported.Add(c.after)); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
