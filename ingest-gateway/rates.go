// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"slices"
	"time"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/receive/udp"
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
	// newest count, and when it was first that.
	newest uint64
	last   time.Time
}

// note takes how many came so far, and returns the mean interval of late or, where
// that is far longer, how long ago the last one was; 0 where neither is known.
func (r *datagramRate) note(count uint64, now time.Time) time.Duration {
	came, took := count-r.count, now.Sub(r.since)
	switch {
	case r.since.IsZero():
		r.since, r.count = now, count
	case took >= rateWindow && came >= 2:
		r.interval = took / time.Duration(came)
		r.since, r.count = now, count
	}
	if r.newest != count || r.last.IsZero() {
		r.newest, r.last = count, now
	}
	if silent := now.Sub(r.last); r.interval > 0 && silent > 3*r.interval+2*wire.GatewayReportInterval {
		return silent
	}
	return r.interval
}

// achieved is how often datagrams come of each channel that an instrument has, of
// how many came of all.
func (r *reporter) achieved(in *intake.Instrument, received map[udp.Flow]uint64, now time.Time) []wire.AchievedSampling {
	var all []wire.AchievedSampling
	for _, w := range in.Listeners {
		flow := udp.Flow{Instrument: in.Name, Channel: w.Channel}
		count, some := received[flow]
		if w.Protocol != wire.ProtocolUDP || !some || slices.ContainsFunc(all, func(a wire.AchievedSampling) bool { return a.Channel == w.Channel }) {
			continue
		}
		if r.rates[flow] == nil {
			r.rates[flow] = &datagramRate{}
		}
		if interval := r.rates[flow].note(count, now); interval > 0 {
			all = append(all, wire.AchievedSampling{Channel: w.Channel, Interval: wire.Span(interval.Round(time.Microsecond))})
		}
	}
	return all
}
