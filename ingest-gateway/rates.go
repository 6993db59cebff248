// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/internal/wire"
)

// rateWindow is how long datagrams are counted at least for their rate.
const rateWindow = 10 * time.Second

// datagramRate measures how often datagrams come.
type datagramRate struct {
	since time.Time
	count uint64
	// interval is the last mean; 0 before the first.
	interval time.Duration
}

// note takes how many came in the day so far, and returns the mean interval of late;
// 0 where that is not known.
func (r *datagramRate) note(count uint64, now time.Time) time.Duration {
	came, took := count-r.count, now.Sub(r.since)
	switch {
	case r.since.IsZero() || count < r.count: // the first look, or that of a new day
		r.since, r.count = now, count
	case took >= rateWindow && came >= 2:
		r.interval = took / time.Duration(came)
		r.since, r.count = now, count
	}
	return r.interval
}

// achieved is how often datagrams come of an instrument with one channel of them:
// of several, the ledger does not tell which one they are of.
func (r *reporter) achieved(in *intake.Instrument, datagrams uint64) []wire.AchievedSampling {
	channel := ""
	for _, w := range in.Ways {
		if w.Protocol != wire.ProtocolUDP {
			continue
		}
		if channel != "" && channel != w.Channel {
			return nil
		}
		channel = w.Channel
	}
	if channel == "" {
		delete(r.rates, in.Name)
		return nil
	}
	if r.rates[in.Name] == nil {
		r.rates[in.Name] = &datagramRate{}
	}
	interval := r.rates[in.Name].note(datagrams, time.Now())
	if interval == 0 {
		return nil
	}
	return []wire.AchievedSampling{{Channel: channel, Interval: wire.Span(interval.Round(time.Microsecond))}}
}
