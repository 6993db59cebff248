// SPDX-License-Identifier: Apache-2.0

// Package instrument makes the status of an Instrument of what its programs report: conditions, listeners and their addresses, the clock of
// its senders, content that was not expected, damage, and sampling.
package instrument

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/observing"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
)

// View is everything that an Instrument's status is made from.
type View struct {
	Now        time.Time
	Instrument *v1alpha1.Instrument
	Verdict    accept.Verdict
	// Entry is the entry in the registry; nil if there is none.
	Entry    *wire.InstrumentEntry
	Bus      observed.Bus
	Gateways []observed.GatewayReport
	Reports  []observed.InstrumentReport
	// Forward is the last report of the Site's lease holder about the copy; nil: none.
	Forward *wire.ForwardStatus
	// Damage is the known damage in the store.
	Damage []wire.Damage
	// Clock is the archivist's last report about the times that the instrument sends; nil: none.
	Clock *wire.ClockStatus
	// Content is the archivist's last report about objects that are not of their declared media type; nil: none.
	Content *wire.ContentStatus
	// Sender is the sender's last report about itself; nil: none.
	Sender *observed.SenderReport
	// Pool that receives, its pods and Services: for the addresses.
	Pool     *v1alpha1.IngestGateway
	Pods     []corev1.Pod
	Services []corev1.Service
}

// Status returns the status, and after how long to look again.
func Status(v View) (v1alpha1.InstrumentStatus, time.Duration) {
	programmed := v.programmed()
	flowing, wait := v.dataFlowing()
	clock, silent := v.clockTrusted()
	c := finding.Conditions{Now: v.Now, Generation: v.Instrument.Generation, Old: v.Instrument.Status.Conditions}
	c.Set(v1alpha1.ConditionAccepted, v.Verdict.Finding)
	c.Set(v1alpha1.ConditionProgrammed, programmed)
	c.Set(v1alpha1.ConditionDataFlowing, flowing)
	c.Set(v1alpha1.ConditionClockTrusted, clock)
	if f, limited := acknowledgeIsLimited(v); limited {
		c.Set(v1alpha1.ConditionAcknowledgeLimited, f)
	}
	if f, damaged := archiveIsDamaged(v); damaged {
		c.Set(v1alpha1.ConditionArchiveIntact, f)
	}
	if f, unexpected := contentIsUnexpected(v); unexpected {
		c.Set(v1alpha1.ConditionContentAsDeclared, f)
	}
	patienceEnds := c.Finish(finding.First(v, []finding.Check[View]{
		func(v View) (finding.Finding, bool) { return v.Verdict.Finding, !v.Verdict.OK() },
		func(View) (finding.Finding, bool) { return programmed, !programmed.OK() },
	}, finding.Good(v1alpha1.ReasonReady, programmed.Message)))
	return v1alpha1.InstrumentStatus{
		ObservedGeneration: v.Instrument.Generation,
		Conditions:         c.All,
		Listeners:          v.listeners(programmed),
		LastReceivedTime:   observed.Rounded(v.lastReceived()),
		ReceivedToday:      ReceivedToday(v.Reports, v.Now),
		Forward:            v.forward(),
		Sender:             v.sender(),
		Sampling:           v.sampling(),
		LinkProbe:          v.linkProbe(),
	}, finding.Soonest(wait, silent, patienceEnds, observed.InstrumentFiguresEvery)
}

// PoolName is the pool that receives: the verdict's, or, while something is absent, the pool of the current entry.
func (v View) PoolName() string {
	if v.Verdict.Gateway == "" && v.Entry != nil {
		return v.Entry.Gateway
	}
	return v.Verdict.Gateway
}

// Do the gateways run the declared state of the Instrument?
var programming = []finding.Check[View]{
	nothingIsKnownToHaveChanged,
	entryIsNotWritten,
	nobodyReceives,
	reportsAreNotRead,
	noGatewayReports,
	gatewayHasProblem,
	gatewayIsBehind,
	instrumentIsRetired,
}

func (v View) programmed() finding.Finding {
	running := v.running()
	return finding.First(v, programming, finding.Good(v1alpha1.ReasonProgrammed, fmt.Sprintf(
		"IngestGateway %q receives for it on %s", v.PoolName(), pods(len(running)))))
}

// running are the pods that are neither starting nor stopping; if there are none, all that report.
func (v View) running() []observed.GatewayReport {
	alive, _ := observed.Fresh(v.Gateways, v.PoolName(), v.Now)
	running := slices.DeleteFunc(slices.Clone(alive), func(r observed.GatewayReport) bool { return r.Revision == 0 || r.Draining })
	if len(running) == 0 {
		return alive
	}
	return running
}

// nothingIsKnownToHaveChanged: while JetStream is away, and while the operator starts, gateways keep the revision that they were last known
// to run.
func nothingIsKnownToHaveChanged(v View) (finding.Finding, bool) {
	was := finding.Condition(v.Instrument.Status.Conditions, v1alpha1.ConditionProgrammed)
	if v.Bus.Up || was == nil || was.ObservedGeneration != v.Instrument.Generation {
		return finding.Finding{}, false
	}
	return finding.From(was), true
}

func entryIsNotWritten(v View) (finding.Finding, bool) {
	inst := v.Instrument
	switch {
	case v.Entry != nil && v.Entry.UID == string(inst.UID) && v.Entry.Generation == inst.Generation:
		return finding.Finding{}, false
	case !v.Verdict.Stands():
		return finding.Bad(v.Verdict.Reason, v.Verdict.Message), true
	case !v.Bus.Up:
		return finding.Bad(v1alpha1.ReasonUnreachable, fmt.Sprintf(
			"generation %d waits for the registry: the operator does not reach JetStream, see the conditions of Site %q",
			inst.Generation, inst.Spec.SiteRef.Name)), true
	default:
		return finding.Bad(v1alpha1.ReasonReconciling, fmt.Sprintf("generation %d is being written to the registry", inst.Generation)), true
	}
}

// nobodyReceives: an Instrument without listeners is in effect once the registry has it.
func nobodyReceives(v View) (finding.Finding, bool) {
	if f, retired := instrumentIsRetired(v); retired {
		return f, len(v.Instrument.Spec.Listeners) == 0
	}
	return finding.Good(v1alpha1.ReasonProgrammed, "the registry has it, and no gateway receives for it"), len(v.Instrument.Spec.Listeners) == 0
}

func reportsAreNotRead(v View) (finding.Finding, bool) {
	return finding.Unknown(v1alpha1.ReasonUnreachable, fmt.Sprintf(
		"the operator does not reach JetStream, see the conditions of Site %q", v.Instrument.Spec.SiteRef.Name)), !v.Bus.Up
}

func noGatewayReports(v View) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonNotReported, fmt.Sprintf(
		"no gateway pod of IngestGateway %q reports: see its conditions", v.PoolName())), len(v.running()) == 0
}

func gatewayHasProblem(v View) (finding.Finding, bool) {
	for _, r := range v.running() {
		if problem := r.Problems[v.Instrument.Name]; problem != "" {
			return finding.Bad(v1alpha1.ReasonGatewayProblem, fmt.Sprintf("gateway pod %s: %s", r.Gateway, problem)), true
		}
	}
	return finding.Finding{}, false
}

func gatewayIsBehind(v View) (finding.Finding, bool) {
	for _, r := range v.running() {
		if r.Revision < v.Entry.Revision {
			return finding.Bad(v1alpha1.ReasonProgressing, fmt.Sprintf(
				"gateway pod %s does not run registry revision %d yet", r.Gateway, v.Entry.Revision)), true
		}
	}
	return finding.Finding{}, false
}

func instrumentIsRetired(v View) (finding.Finding, bool) {
	return finding.Good(v1alpha1.ReasonRetired, "retired: gateways receive nothing for it, and its archive stays"),
		v.Instrument.Spec.State == v1alpha1.InstrumentRetired
}

// Does data arrive?
var flow = []finding.Check[View]{
	instrumentDoesNotObserve,
	itIsNotTheTime,
	reportsWereReadLately,
	instrumentIsNotAccepted,
	nothingIsReceived,
	reportsAreAbsent,
	reportsWereLost,
	dataIsNotDueYet,
	dataWasNeverSeen,
	dataIsOverdue,
}

// dataFlowing also says when the answer may change without a report.
func (v View) dataFlowing() (finding.Finding, time.Duration) {
	f := finding.First(v, flow, finding.Good(v1alpha1.ReasonFlowing, "data arrives in cadence"))
	if len(v.Instrument.Spec.Listeners) == 0 {
		return f, 0
	}
	return f, finding.Soonest(v.absentIn(), v.overdueFrom().Sub(v.Now)+time.Millisecond)
}

// absentIn is after how long it is no longer known whether data arrives; 0 while a gateway reports: the reports show the first silence.
func (v View) absentIn() time.Duration {
	alive, latest := observed.Fresh(v.Gateways, v.PoolName(), v.Now)
	switch {
	case !v.Bus.Up:
		latest = v.Bus.Since
	case len(alive) > 0:
		return 0
	}
	return latest.Add(observed.ReportAge+observed.ReportGrace).Sub(v.Now) + time.Second
}

// due is how long after the last data the next is overdue.
func (v View) due() time.Duration {
	return observing.Due(v.Instrument.Spec.Cadence.Interval.Duration)
}

// overdueFrom counts from the Instrument's creation where nothing came yet.
func (v View) overdueFrom() time.Time {
	if last := v.lastReceived(); !last.IsZero() {
		return last.Add(v.due())
	}
	return v.Instrument.CreationTimestamp.Add(v.due())
}

// lastReceived is the later of the reported time and the one in the status: lost reports do not mean that nothing was received.
func (v View) lastReceived() time.Time {
	if end := v.lostReport(); !end.IsZero() {
		return end
	}
	return LastReported(v.Reports)
}

// lostReport is the latest that may have been reported where the status, which is rounded
// down, says more than the reports do; zero where it does not.
func (v View) lostReport() time.Time {
	said := v.Instrument.Status.LastReceivedTime
	if said == nil || !said.After(LastReported(v.Reports)) || said.After(v.Now) {
		return time.Time{}
	}
	return said.Truncate(observed.LastReceivedStep).Add(observed.LastReceivedStep - time.Second)
}

// LastReported is when data last arrived, according to the reports; zero if they do not have it.
func LastReported(reports []observed.InstrumentReport) time.Time {
	var last time.Time
	for _, r := range reports {
		if r.LastReceived.After(last) {
			last = r.LastReceived
		}
	}
	return last
}

func instrumentDoesNotObserve(v View) (finding.Finding, bool) {
	state := v.Instrument.Spec.State
	return finding.Bad(v1alpha1.ReasonNotObserving, "no data is due: spec.state is "+string(state)),
		state == v1alpha1.InstrumentMaintenance || state == v1alpha1.InstrumentRetired
}

// itIsNotTheTime: spec.cadence.observes says that nothing is due, or was not until
// less ago than the next data would be overdue.
func itIsNotTheTime(v View) (finding.Finding, bool) {
	schedule, err := observing.Of(entries.ObservesEntry(&v.Instrument.Spec))
	if err != nil || schedule.Always() {
		return finding.Finding{}, false
	}
	return finding.Bad(v1alpha1.ReasonNotObserving, "no data is due: spec.cadence.observes says when it is"), schedule.Rests(v.Now, v.overdueFrom(), v.due())
}

// reportsWereReadLately: a short absence of the operator or of JetStream is no sign of an instrument's state.
func reportsWereReadLately(v View) (finding.Finding, bool) {
	was := finding.Condition(v.Instrument.Status.Conditions, v1alpha1.ConditionDataFlowing)
	if v.Bus.Up || was == nil || v.Now.Sub(v.Bus.Since) > observed.ReportAge+observed.ReportGrace {
		return finding.Finding{}, false
	}
	return finding.From(was), true
}

// instrumentIsNotAccepted: if its entry is in the registry all the same, gateways receive for it, and their reports count.
func instrumentIsNotAccepted(v View) (finding.Finding, bool) {
	stands := v.Entry != nil && v.Entry.UID == string(v.Instrument.UID)
	return finding.Unknown(v1alpha1.ReasonNotAccepted, "no data is due until the Instrument is accepted: "+v.Verdict.Message),
		!v.Verdict.OK() && !stands
}

// nothingIsReceived: gateways do not report imported data.
func nothingIsReceived(v View) (finding.Finding, bool) {
	return finding.Unknown(v1alpha1.ReasonNoListeners,
			"it has no listeners, and gateways report nothing of data that is imported: `substorm archive report` says what is there"),
		len(v.Instrument.Spec.Listeners) == 0
}

func reportsAreAbsent(v View) (finding.Finding, bool) {
	_, latest := observed.Fresh(v.Gateways, v.PoolName(), v.Now)
	switch {
	case !v.Bus.Up:
		return finding.Unknown(v1alpha1.ReasonNoReport, fmt.Sprintf(
			"the operator does not reach JetStream and reads no reports: see the conditions of Site %q",
			v.Instrument.Spec.SiteRef.Name)), true
	case v.PoolName() == "":
		return finding.Unknown(v1alpha1.ReasonNoReport, "no IngestGateway receives for it"), true
	default:
		return finding.Unknown(v1alpha1.ReasonNoReport, fmt.Sprintf(
				"no gateway pod of IngestGateway %q reports: see its conditions", v.PoolName())),
			v.Now.Sub(latest) > observed.ReportAge+observed.ReportGrace
	}
}

// reportsWereLost: the earlier finding about the data holds, until more of it is overdue.
func reportsWereLost(v View) (finding.Finding, bool) {
	was := finding.Condition(v.Instrument.Status.Conditions, v1alpha1.ConditionDataFlowing)
	if was == nil || v.lostReport().IsZero() {
		return finding.Finding{}, false
	}
	holds := was.Reason == v1alpha1.ReasonOverdue || was.Reason == v1alpha1.ReasonFlowing && !v.Now.After(v.overdueFrom())
	return finding.From(was), holds
}

func dataIsNotDueYet(v View) (finding.Finding, bool) {
	return finding.Unknown(v1alpha1.ReasonAwaitingData, fmt.Sprintf(
			"nothing was received yet, and nothing is overdue before %s: point the instrument at an address in status.listeners",
			v.overdueFrom().UTC().Format(time.RFC3339))),
		v.lastReceived().IsZero() && !v.Now.After(v.overdueFrom())
}

func dataWasNeverSeen(v View) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonNeverSeen, "nothing was received yet: point the instrument at an address in status.listeners"),
		v.lastReceived().IsZero()
}

func dataIsOverdue(v View) (finding.Finding, bool) {
	last := v.lastReceived()
	return finding.Bad(v1alpha1.ReasonOverdue, fmt.Sprintf(
		"nothing was received since %s, and data is due every %s: check the instrument and its link to the gateways",
		last.UTC().Format(time.RFC3339), v.Instrument.Spec.Cadence.Interval.Duration)), v.Now.After(v.overdueFrom())
}

// acknowledgeIsLimited: a gateway that reports has no peer to copy its spool to.
func acknowledgeIsLimited(v View) (finding.Finding, bool) {
	if v.Instrument.Spec.Acknowledge != v1alpha1.AcknowledgeReplicated || !v.Bus.Up {
		was := finding.Condition(v.Instrument.Status.Conditions, v1alpha1.ConditionAcknowledgeLimited)
		if was == nil || v.Instrument.Spec.Acknowledge != v1alpha1.AcknowledgeReplicated {
			return finding.Finding{}, false
		}
		return finding.From(was), true // no report contradicts it
	}
	alive, _ := observed.Fresh(v.Gateways, v.PoolName(), v.Now)
	var alone []string
	for _, g := range alive {
		if g.Peer == "" && !g.Draining && !g.Stopped {
			alone = append(alone, g.Gateway)
		}
	}
	return finding.Good(v1alpha1.ReasonNoReplica, fmt.Sprintf(
		"spec.acknowledge asks for Replicated, and %s has no gateway of its pool on another node to copy its spool to: its receipts mean Stored, "+
			"so it gives none while the object store or JetStream is away; run at least 2 pods on 2 nodes", finding.List(alone)),
	), len(alone) > 0
}

// ReceivedToday sums up the pods' last reports of the UTC day that contains now; nil without a report.
func ReceivedToday(reports []observed.InstrumentReport, now time.Time) *v1alpha1.DayCounts {
	if len(reports) == 0 {
		return nil
	}
	today := wire.DayOf(now)
	sum := &v1alpha1.DayCounts{Day: string(today)}
	for _, r := range reports {
		if r.Day == today {
			sum.ObjectCount += int64(r.Objects)
			sum.DatagramCount += int64(r.Datagrams)
			sum.Bytes += int64(r.Bytes)
		}
	}
	return sum
}

// forward is how the copy is getting on, where one is declared and reported of.
func (v View) forward() *v1alpha1.ForwardStatus {
	declared, said := v.Instrument.Spec.Forward, v.Forward
	if declared == nil || said == nil || said.Address != declared.Address {
		return nil
	}
	status := &v1alpha1.ForwardStatus{
		Address: said.Address, SentCount: int64(said.Sent.Items), DroppedCount: int64(said.Dropped.Items),
		BacklogCount: int64(said.Backlog.Items), BacklogBytes: int64(said.Backlog.Bytes),
		LastError: said.LastError[:min(len(said.LastError), maxForwardError)],
	}
	if said.Oldest != nil {
		status.OldestTime = new(metav1.NewTime(said.Oldest.UTC().Truncate(time.Second)))
	}
	return status
}

// maxForwardError is how long status.forward.lastError may be, in bytes.
const maxForwardError = 1024

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

// UnreadableFlow is the DataFlowing of an Instrument that cannot be decoded: it is not known which data is due.
func UnreadableFlow(inst *v1alpha1.Instrument) finding.Finding {
	return finding.Unknown(v1alpha1.ReasonNotAccepted, "the operator cannot read the Instrument: "+finding.Unreadable(inst))
}
