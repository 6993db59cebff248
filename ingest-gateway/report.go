// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/ingest-gateway/intake"
	"github.com/substorm/substorm/ingest-gateway/receive/udp"
	"github.com/substorm/substorm/internal/wire"
)

const (
	reportTimeout = 2 * time.Second
	// othersMaxAge is how long the totals of the pod's earlier incarnations, of
	// a day, are believed: another pod of the name may write them.
	othersMaxAge = 30 * time.Second
)

// reporter reports to the Site what the pod runs and what it received.
type reporter struct {
	g    *gateway
	kv   jetstream.KeyValue
	wake chan struct{}
	// stopped: nothing is received any more.
	stopped bool
	// unwritten: not all that was counted is in the ledger.
	unwritten bool
	// gathers: reports wait for more datagrams, see waits.
	gathers bool
	said    map[string]wire.InstrumentStatus
	// revision is the revision of the pod's own report, 0 before it is known. displaced: another
	// pod has its name, and reports under it.
	revision  uint64
	displaced bool
	// cleared: no report of this volume stands beside another pod's.
	cleared bool
	// others are the totals of earlier incarnations, by ledger key.
	others map[string]others
	// heard heartbeats are reported, so many of them.
	heard uint64
	// load of the last second.
	load *wire.Load
	// rates at which datagrams come.
	rates map[udp.Flow]*datagramRate
}

type others struct {
	totals wire.Totals
	at     time.Time
}

func newReporter(g *gateway) *reporter {
	return &reporter{
		g: g, wake: make(chan struct{}, 1), gathers: g.cfg.Gather > 0,
		said: map[string]wire.InstrumentStatus{}, others: map[string]others{}, rates: map[udp.Flow]*datagramRate{},
	}
}

// requestReport asks for a report at once: something changed.
func (r *reporter) requestReport() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// restEvery is after how many reports of the pod itself the rest is reported.
const restEvery = int(wire.GatewayReportInterval / wire.LoadReportInterval)

// run reports the pod every LoadReportInterval, and at once where something changed; the rest every GatewayReportInterval.
func (r *reporter) run(ctx context.Context) error {
	tick := time.NewTicker(wire.LoadReportInterval)
	defer tick.Stop()
	for said, ticks := false, 0; ; {
		err := r.reportGateway(ctx)
		if err != nil && !said && ctx.Err() == nil {
			r.g.log.Warn("reports do not reach the Site", "error", err)
		}
		said = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-tick.C:
			r.load = cmp.Or(r.g.meter.Measure(time.Now()), r.load)
			if ticks++; !said && ticks%restEvery == 0 {
				r.reportInstruments(ctx)
				r.reportRefusals(ctx)
				r.reportSenders(ctx)
			}
		}
	}
}

// reportLast reports once more, at the end. The totals of instruments were reported before the ledger was closed.
func (r *reporter) reportLast(ctx context.Context) {
	r.stopped = true
	if r.reportGateway(ctx) == nil {
		r.reportRefusals(ctx)
		r.reportSenders(ctx)
	}
}

// reportRefusals reports the instruments for which a sender was refused that was nearly one of
// them.
func (r *reporter) reportRefusals(ctx context.Context) {
	for name, refused := range r.g.registry.Refusals.Changed() {
		err := r.put(ctx, wire.RefusalStatusKey(name, r.g.cfg.Gateway), wire.RefusalStatus{
			Incarnation: r.g.incarnation, ReportedAt: time.Now().UTC(), Refused: refused,
		})
		if err != nil {
			r.g.registry.Refusals.Again(name)
		}
	}
}

func (r *reporter) reportGateway(ctx context.Context) error {
	g, s := r.g, r.g.registry.Current()
	status := wire.GatewayStatus{
		Gateway: g.cfg.Gateway, Pool: g.cfg.Pool, Incarnation: g.incarnation,
		Node: g.cfg.Node, Address: g.cfg.PodIP, Volume: g.volume.id,
		StartedAt: g.startedAt, ReportedAt: time.Now().UTC(),
		Revision: s.Revision, Datapath: datapath, Problems: s.Problems,
		Draining: g.health.draining.Load(),
		Load:     r.load, Spool: g.spoolStatus(), Stopped: r.stopped, Unwritten: r.unwritten,
	}
	g.addCopies(&status)
	g.addMirror(&status)
	return r.putGateway(ctx, status)
}

// datapath is how datagrams are read, spelled as in the IngestGateway.
const datapath = "Kernel"

// reportInstruments reports those that something was received of since the
// last time.
func (r *reporter) reportInstruments(ctx context.Context) {
	now, datagrams := time.Now(), r.g.udp.Received()
	day := wire.DayOf(now)
	for name, in := range r.g.registry.Current().Instruments() {
		last := r.g.ledger.LastReceived(name)
		if last.IsZero() {
			continue
		}
		before := r.said[name]
		own := r.g.ledger.Totals(name, day)
		achieved, listeners := r.achieved(in, datagrams, now), r.listeners(in)
		if before.Day == day && before.LastReceived.Equal(last) && before.Objects == own.Objects && before.Datagrams == own.Datagrams &&
			maps.Equal(before.Listeners, listeners) || r.gathers && waits(before, own, day, in.Cadence, now) {
			continue
		}
		sum := own.Plus(r.readEarlier(ctx, name, day))
		err := r.put(ctx, wire.InstrumentStatusKey(name, r.g.cfg.Gateway), wire.InstrumentStatus{
			ReportedAt: time.Now().UTC(), LastReceived: last.UTC(), Listeners: listeners, Day: day,
			Objects: sum.Objects, Datagrams: sum.Datagrams, Bytes: sum.ObjectBytes + sum.DatagramBytes,
			Achieved: achieved,
		})
		if err != nil {
			return
		}
		r.said[name] = wire.InstrumentStatus{ReportedAt: now, LastReceived: last, Listeners: listeners, Day: day, Objects: own.Objects, Datagrams: own.Datagrams}
	}
}

// waits says whether an instrument's report waits for more datagrams, because only datagrams came since the one before.
func waits(before wire.InstrumentStatus, own wire.Totals, day wire.Day, cadence time.Duration, now time.Time) bool {
	return before.Day == day && before.Objects == own.Objects && before.Datagrams < own.Datagrams &&
		now.Sub(before.ReportedAt) < wire.TelemetryReportWait(cadence)
}

// listeners are when something last came to each listener of an instrument that something came to. An object is noted
// there after it is counted.
func (r *reporter) listeners(in *intake.Instrument) map[string]time.Time {
	var all map[string]time.Time
	for _, listener := range in.Listeners {
		at := r.g.ledger.LastReceivedAt(in.Name, listener.Name)
		if listener.Name == "" || at.IsZero() {
			continue
		}
		if all == nil {
			all = make(map[string]time.Time, len(in.Listeners))
		}
		all[listener.Name] = at.UTC()
	}
	return all
}

// reportSenders reports what senders said of themselves since the last time.
func (r *reporter) reportSenders(ctx context.Context) {
	news, heard := r.g.senders.since(r.heard)
	for instrument, status := range news {
		if r.put(ctx, wire.SenderStatusKey(instrument, r.g.cfg.Gateway), status) != nil {
			return // all of them next time
		}
	}
	r.heard = heard
}

// readEarlier returns what the pod's earlier incarnations received on a day, as far
// as the ledger answers.
func (r *reporter) readEarlier(ctx context.Context, instrument string, day wire.Day) wire.Totals {
	key := wire.LedgerKey(instrument, day, wire.StepReceived, r.g.cfg.Gateway)
	if o, ok := r.others[key]; ok && time.Since(o.at) < othersMaxAge {
		return o.totals
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	kv, err := r.g.js.KeyValue(ctx, wire.LedgerBucket(r.g.cfg.Site))
	if err != nil {
		return r.others[key].totals
	}
	e, err := kv.Get(ctx, key)
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return r.others[key].totals
	}
	var totals wire.Totals
	if err == nil {
		entry, err := wire.Decode[wire.LedgerEntry](e.Value())
		if err != nil {
			return r.others[key].totals
		}
		delete(entry.Incarnations, r.g.incarnation)
		totals = entry.Sum()
	}
	for key := range r.others { // of other days
		if _, d, _, _, err := wire.ParseLedgerKey(key); err != nil || d != day {
			delete(r.others, key)
		}
	}
	r.others[key] = others{totals, time.Now()}
	return totals
}

func (r *reporter) put(ctx context.Context, key string, status any) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	b, err := wire.Encode(status)
	if err != nil {
		return err
	}
	kv, err := r.bucket(ctx)
	if err != nil {
		return err
	}
	_, err = kv.Put(ctx, key, b)
	return err
}

// bucket is where reports go.
func (r *reporter) bucket(ctx context.Context) (_ jetstream.KeyValue, err error) {
	if r.kv == nil {
		r.kv, err = r.g.js.KeyValue(ctx, wire.StatusBucket(r.g.cfg.Site))
	}
	return r.kv, err
}
