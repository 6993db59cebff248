// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/instrument"
	"github.com/substorm/substorm/operator/plan/observed"
)

// reports hold the last reports of one Site's gateways.
type reports struct {
	// gatewayChanged is called when a pod began, changed or ceased to report
	// something that conditions depend on; pool is its IngestGateway, and
	// followed says that it only followed the registry.
	gatewayChanged func(pool string, followed bool)
	// dataArrived is called when new data of an instrument is reported.
	dataArrived func(instrument string)
	// senderChanged is called when an instrument's sender says something that its
	// condition may depend on.
	senderChanged func(instrument string)
	// refused is called when a sender was refused that nearly matched an instrument.
	refused func(instrument string)
	// damageChanged is called when something of an instrument is found to be damaged, or
	// whole again.
	damageChanged func(instrument string)
	// feedServerChanged is called when a pod of a FeedServer began, changed or ceased to
	// report something that conditions depend on, with followed as above, and
	// consumerChanged when one reports another state of a FeedConsumer.
	feedServerChanged func(server string, followed bool)
	consumerChanged   func(consumer string)
	// mirrorChanged is called when a run of a MirrorPartner reports.
	mirrorChanged func(partner string)
	// ledgerChanged is called when other days of the ledger are closed, and when something
	// else keeps data from expiring, is damaged, or was read by the scrub.
	ledgerChanged func()
	log           *slog.Logger

	mu       sync.Mutex
	gateways map[string]*gatewayReport
	// instruments by name and pod.
	instruments map[string]map[string]observed.InstrumentReport
	// forwards by instrument.
	forwards map[string]wire.ForwardStatus
	// clocks by instrument.
	clocks map[string]wire.ClockStatus
	// contents by instrument.
	contents map[string]wire.ContentStatus
	// ledger is nil until it was reported.
	ledger *wire.LedgerStatus
	// expiry is nil until it was reported.
	expiry *wire.ExpiryStatus
	// pullers by reader.
	pullers map[string]wire.PullerStatus
	// scrub says when the archivist last read the archive; nil if this was not reported yet.
	scrub *wire.ScrubStatus
	// senders by instrument and pod.
	senders map[string]map[string]observed.SenderReport
	// refusals by instrument.
	refusals map[string]*plan.Refusals
	// damages by instrument and key.
	damages map[string]map[string]wire.Damage
	// feedServers by pod.
	feedServers map[string]*feedServerReport
	// consumers by name and pod.
	consumers map[string]map[string]observed.ConsumerReport
	// mirrors by partner and run.
	mirrors map[string]map[string]plan.MirrorReport
}

type gatewayReport struct {
	observed.GatewayReport
	alive bool
}

// aliveFor is how long after its last report a pod counts as one that reports.
const aliveFor = 3 * wire.GatewayReportInterval

func newReports(log *slog.Logger) *reports {
	return &reports{log: log, gateways: map[string]*gatewayReport{}, instruments: map[string]map[string]observed.InstrumentReport{},
		forwards: map[string]wire.ForwardStatus{}, clocks: map[string]wire.ClockStatus{}, contents: map[string]wire.ContentStatus{}, senders: map[string]map[string]observed.SenderReport{},
		refusals:    map[string]*plan.Refusals{},
		damages:     map[string]map[string]wire.Damage{},
		feedServers: map[string]*feedServerReport{}, consumers: map[string]map[string]observed.ConsumerReport{},
		mirrors: map[string]map[string]plan.MirrorReport{}, pullers: map[string]wire.PullerStatus{}}
}

// take stores one entry of the status bucket. Replayed entries were written
// before the watch began: the server's clock says when. All others came now.
func (r *reports) take(entry jetstream.KeyValueEntry, replayed bool, now time.Time) {
	if instrument, ok := wire.ParseDamageKey(entry.Key()); ok {
		r.takeDamage(instrument, entry)
		return
	}
	instrument, pod, ok := wire.ParseStatusKey(entry.Key())
	if entry.Operation() != jetstream.KeyValuePut {
		if ok && instrument == "" {
			r.forgetGateway(pod)
		}
		r.forget(entry.Key())
		return
	}
	if instrument, ok := wire.ParseForwardStatusKey(entry.Key()); ok {
		r.takeForward(instrument, entry.Value())
		return
	}
	if reader, ok := wire.ParsePullerStatusKey(entry.Key()); ok {
		r.takePuller(reader, entry.Value())
		return
	}
	if instrument, ok := wire.ParseClockStatusKey(entry.Key()); ok {
		r.takeClock(instrument, entry.Value())
		return
	}
	if instrument, ok := wire.ParseContentStatusKey(entry.Key()); ok {
		r.takeContent(instrument, entry.Value())
		return
	}
	switch entry.Key() {
	case wire.LedgerStatusKey:
		r.takeLedger(entry.Value())
		return
	case wire.ExpiryStatusKey:
		r.takeExpiry(entry.Value())
		return
	case wire.ScrubStatusKey:
		r.takeScrub(entry.Value())
		return
	}
	if name, pod, ok := wire.ParseRefusalStatusKey(entry.Key()); ok {
		r.takeRefusals(name, pod, entry.Value(), replayed, now)
		return
	}
	seen := now
	if replayed && entry.Created().Before(now) {
		seen = entry.Created()
	}
	if instrument, pod, ok := wire.ParseSenderStatusKey(entry.Key()); ok {
		r.takeSender(instrument, pod, entry.Value(), seen)
		return
	}
	if r.takeMirror(entry.Key(), entry.Value(), seen) || r.takeFeedReport(entry.Key(), entry.Value(), seen, now) {
		return
	}
	if !ok {
		return
	}
	var err error
	if instrument == "" {
		err = r.takeGateway(pod, entry.Value(), seen, now)
	} else {
		err = r.takeInstrument(instrument, pod, entry.Value(), seen)
	}
	if err != nil {
		r.log.Warn("a gateway's report cannot be read", "key", entry.Key(), "error", err)
	}
}

// takeGateway stores a pod's report. A report of another pod than its key names is refused: under one key a writer could report any number
// of pods, and all of them would be kept for as long as the operator runs.
func (r *reports) takeGateway(pod string, value []byte, seen, now time.Time) error {
	status, err := wire.Decode[wire.GatewayStatus](value)
	if err != nil {
		return err
	}
	if status.Gateway != pod {
		return fmt.Errorf("it is of %.80q, but its key belongs to another pod", status.Gateway)
	}
	next := &gatewayReport{GatewayReport: observed.GatewayReport{GatewayStatus: status, Seen: seen}, alive: now.Sub(seen) <= aliveFor}
	r.mu.Lock()
	was := r.gateways[status.Gateway]
	r.gateways[status.Gateway] = next
	r.mu.Unlock()
	switch {
	case was == nil || was.alive != next.alive || was.Incarnation != status.Incarnation ||
		was.Draining != status.Draining || was.Stopped != status.Stopped || plan.HoldsData(&was.GatewayStatus) != plan.HoldsData(&status) ||
		was.Peer != status.Peer || was.Datapath != status.Datapath || !maps.Equal(was.Problems, status.Problems):
		r.gatewayChanged(status.Pool, false)
	case was.Revision != status.Revision:
		r.gatewayChanged(status.Pool, true)
	}
	return nil
}

// forgetGateway: a pod's report was removed, for example because its spool was given up.
func (r *reports) forgetGateway(pod string) {
	r.mu.Lock()
	was := r.gateways[pod]
	delete(r.gateways, pod)
	r.mu.Unlock()
	if was != nil {
		r.gatewayChanged(was.Pool, false)
	}
}

func (r *reports) takeRefusals(instrument, pod string, value []byte, replayed bool, now time.Time) {
	status, err := wire.Decode[wire.RefusalStatus](value)
	if err != nil {
		r.log.Warn("a gateway's report cannot be read", "instrument", instrument, "gateway", pod, "error", err)
		return
	}
	r.mu.Lock()
	if r.refusals[instrument] == nil {
		r.refusals[instrument] = &plan.Refusals{}
	}
	r.refusals[instrument].Take(pod, status, replayed, now)
	r.mu.Unlock()
	r.refused(instrument)
}

// refusalsDue returns the events that are due about an instrument's refusals, and when to ask again.
func (r *reports) refusalsDue(instrument string, now time.Time) ([]plan.RefusalEvent, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	refusals := r.refusals[instrument]
	if refusals == nil {
		return nil, 0
	}
	return refusals.Due(now)
}

func (r *reports) takeInstrument(instrument, pod string, value []byte, seen time.Time) error {
	status, err := wire.Decode[wire.InstrumentStatus](value)
	if err != nil {
		return err
	}
	report := observed.InstrumentReportOf(pod, status, seen)
	r.mu.Lock()
	if r.instruments[instrument] == nil {
		r.instruments[instrument] = map[string]observed.InstrumentReport{}
	}
	was := r.instruments[instrument][pod]
	r.instruments[instrument][pod] = report
	r.mu.Unlock()
	if report.LastReceived.After(was.LastReceived) {
		r.dataArrived(instrument)
	}
	return nil
}

// takeForward stores how a copy is getting on. It is a figure: nothing waits for it.
func (r *reports) takeForward(instrument string, value []byte) {
	status, err := wire.Decode[wire.ForwardStatus](value)
	if err != nil {
		r.log.Warn("the report of a copy cannot be read", "instrument", instrument, "error", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forwards[instrument] = status
}

// takeClock stores the archivist's report about the times that an instrument sends.
func (r *reports) takeClock(instrument string, value []byte) {
	status, err := wire.Decode[wire.ClockStatus](value)
	if err != nil {
		r.log.Warn("the report of an instrument's clock cannot be read", "instrument", instrument, "error", err)
		return
	}
	r.mu.Lock()
	r.clocks[instrument] = status
	r.mu.Unlock()
	r.senderChanged(instrument) // the archivist reports once a minute at most
}

// takeContent stores the archivist's report about objects that are not of their declared media type.
func (r *reports) takeContent(instrument string, value []byte) {
	status, err := wire.Decode[wire.ContentStatus](value)
	if err != nil {
		r.log.Warn("the report of an instrument's media types cannot be read", "instrument", instrument, "error", err)
		return
	}
	r.mu.Lock()
	r.contents[instrument] = status
	r.mu.Unlock()
	r.senderChanged(instrument) // the archivist reports once a minute at most
}

// ofContent returns the last report about objects that are not of their declared media type; nil if there is none.
func (r *reports) ofContent(instrument string) *wire.ContentStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	status, ok := r.contents[instrument]
	if !ok {
		return nil
	}
	return &status
}

// ofClock returns the last report about the times that an instrument sends; nil if there is none.
func (r *reports) ofClock(instrument string) *wire.ClockStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	status, ok := r.clocks[instrument]
	if !ok {
		return nil
	}
	return &status
}

// takeLedger stores how far the ledger is closed.
func (r *reports) takeLedger(value []byte) {
	status, err := wire.Decode[wire.LedgerStatus](value)
	if err != nil {
		r.log.Warn("the report of the ledger cannot be read", "error", err)
		return
	}
	r.mu.Lock()
	was := r.ledger
	r.ledger = &status
	r.mu.Unlock()
	if was == nil || was.ClosedTo != status.ClosedTo || !slices.Equal(was.Reopened, status.Reopened) {
		r.ledgerChanged()
	}
}

// takeExpiry stores the archivist's report about what keeps data from expiring.
func (r *reports) takeExpiry(value []byte) {
	status, err := wire.Decode[wire.ExpiryStatus](value)
	if err != nil {
		r.log.Warn("the report of data that does not expire cannot be read", "error", err)
		return
	}
	r.mu.Lock()
	r.expiry = &status
	r.mu.Unlock()
	r.ledgerChanged() // the archivist reports only changes
}

// takePuller stores a report of a reader that pulls about its last run.
func (r *reports) takePuller(reader string, value []byte) {
	status, err := wire.Decode[wire.PullerStatus](value)
	if err != nil {
		r.log.Warn("the report of a reader that pulls cannot be read", "reader", reader, "error", err)
		return
	}
	r.mu.Lock()
	r.pullers[reader] = status
	r.mu.Unlock()
	r.ledgerChanged()
}

// forget takes the deletion of a report that no gateway made.
func (r *reports) forget(key string) {
	r.forgetFeedReport(key)
	r.forgetMirror(key)
	r.forgetPuller(key)
}

// forgetPuller removes the report of a reader that pulls.
func (r *reports) forgetPuller(key string) {
	if reader, ok := wire.ParsePullerStatusKey(key); ok {
		r.mu.Lock()
		delete(r.pullers, reader)
		r.mu.Unlock()
		r.ledgerChanged()
	}
}

// ofPullers returns the reports of readers that pull about their last runs.
func (r *reports) ofPullers() map[string]wire.PullerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.pullers)
}

// ofExpiry returns what keeps data from expiring; nil if this was not reported yet.
func (r *reports) ofExpiry() *wire.ExpiryStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.expiry
}

// ofLedger returns how far the ledger is closed; nil if this was not reported yet.
func (r *reports) ofLedger() *wire.LedgerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger
}

// takeSender stores a pod's report about an instrument's senders.
func (r *reports) takeSender(instrument, pod string, value []byte, seen time.Time) {
	status, err := wire.Decode[wire.SenderStatus](value)
	if err != nil {
		r.log.Warn("the report of a sender cannot be read", "instrument", instrument, "error", err)
		return
	}
	was := r.ofSender(instrument, seen)
	r.mu.Lock()
	if r.senders[instrument] == nil {
		r.senders[instrument] = map[string]observed.SenderReport{}
	}
	r.senders[instrument][pod] = observed.SenderReport{SenderStatus: status, Seen: seen}
	r.mu.Unlock()
	if is := r.ofSender(instrument, seen); was == nil || is.Differs(*was) {
		r.senderChanged(instrument)
	}
}

// ofSender returns the last report of an instrument's senders; nil if there is none.
func (r *reports) ofSender(name string, now time.Time) *observed.SenderReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	return instrument.MergeSenders(slices.Collect(maps.Values(r.senders[name])), now)
}

// ofForward returns the last report of an instrument's copy, nil without one.
func (r *reports) ofForward(instrument string) *wire.ForwardStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	status, ok := r.forwards[instrument]
	if !ok {
		return nil
	}
	return &status
}

// tick notices pods that ceased to report.
func (r *reports) tick(now time.Time) {
	var silent []string
	r.mu.Lock()
	for _, g := range r.gateways {
		if g.alive && now.Sub(g.Seen) > aliveFor {
			g.alive = false
			silent = append(silent, g.Pool)
		}
	}
	servers := r.silentFeedServers(now)
	r.mu.Unlock()
	for _, server := range servers {
		r.feedServerChanged(server, false)
	}
	slices.Sort(silent)
	for _, pool := range slices.Compact(silent) {
		r.gatewayChanged(pool, false)
	}
}

// ofGateways returns every pod's last report.
func (r *reports) ofGateways() []observed.GatewayReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]observed.GatewayReport, 0, len(r.gateways))
	for _, pod := range slices.Sorted(maps.Keys(r.gateways)) {
		all = append(all, r.gateways[pod].GatewayReport)
	}
	return all
}

// ofPool returns the last reports of a pool's pods.
func (r *reports) ofPool(pool string) (all []observed.GatewayReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, report := range r.gateways {
		if report.Pool == pool {
			all = append(all, report.GatewayReport)
		}
	}
	slices.SortFunc(all, func(a, b observed.GatewayReport) int { return cmp.Compare(a.Gateway, b.Gateway) })
	return all
}

// ofInstrument returns every pod's last report about an instrument.
func (r *reports) ofInstrument(name string) []observed.InstrumentReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	byPod := r.instruments[name]
	all := make([]observed.InstrumentReport, 0, len(byPod))
	for _, pod := range slices.Sorted(maps.Keys(byPod)) {
		all = append(all, byPod[pod])
	}
	return all
}

// newestRevision is the newest registry revision that any pod reported.
func (r *reports) newestRevision() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	newest := int64(0)
	for _, g := range r.gateways {
		newest = max(newest, g.Revision)
	}
	for _, s := range r.feedServers {
		newest = max(newest, s.Revision)
	}
	return newest
}
