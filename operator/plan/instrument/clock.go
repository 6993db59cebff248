// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
)

// May the instrument's clock be trusted?
var clockChecks = []finding.Check[View]{
	timesAreDoubted,
	reportsOfSendersAreNotRead,
	senderIsSilent,
	clockIsNotMeasured,
	clockIsOff,
	clockIsUncertain,
}

// MergeSenders joins the gateways' reports of an instrument's senders: the last report of each sender that was heard within heartbeatAge;
// if there is none, the last report of all. It returns nil without a report.
func MergeSenders(reports []observed.SenderReport, now time.Time) *observed.SenderReport {
	var all []wire.SenderStatus
	var newest time.Time
	for _, r := range reports {
		said := r.Senders
		if len(said) == 0 {
			said = []wire.SenderStatus{r.SenderStatus}
		}
		for _, s := range said {
			s.ReportedAt = r.Seen.Add(s.ReportedAt.Sub(r.ReportedAt)) // by our clock
			if all = append(all, s); s.ReportedAt.After(newest) {
				newest = s.ReportedAt
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	since := now.Add(-observed.HeartbeatAge)
	if newest.Before(since) {
		since = newest
	}
	all = slices.DeleteFunc(all, func(s wire.SenderStatus) bool { return s.ReportedAt.Before(since) })
	return &observed.SenderReport{SenderStatus: wire.MergeSenders(all), Seen: newest}
}

func (v View) clockTrusted() (finding.Finding, time.Duration) {
	f := finding.First(v, clockChecks, finding.Good(v1alpha1.ReasonWithinMaxSkew, fmt.Sprintf("the sender's clock is within %s of the gateways'", v.maxSkew())))
	if v.Sender == nil {
		return f, 0
	}
	return f, v.Sender.Seen.Add(observed.HeartbeatAge).Sub(v.Now) + time.Second
}

func (v View) maxSkew() time.Duration {
	if d := v.Instrument.Spec.Clock.MaxSkew.Duration; d > 0 {
		return d
	}
	return 2 * time.Second // an Instrument of before spec.clock
}

// timesAreDoubted: the last object with a time had one that is not believed.
func timesAreDoubted(v View) (finding.Finding, bool) {
	c := v.Clock
	if c == nil || c.BelievedAt != nil {
		return finding.Finding{}, false
	}
	return finding.Bad(v1alpha1.ReasonClockOff, fmt.Sprintf(
		"what was received at %s tells a time of observation that is %s the gateways', too far to be believed: set the clock that the times come from, by NTP or GPS; "+
			"data is kept as it came, and embargo, order and start of the data count from the receipt",
		c.DoubtedAt.UTC().Format(time.RFC3339), sideOf(time.Duration(c.Offset)))), true
}

// sideOf says on which side of the gateways' clock another is, and by how much.
func sideOf(offset time.Duration) string {
	side := "behind"
	if offset < 0 {
		side = "ahead of"
	}
	const day = 24 * time.Hour
	if far := offset.Abs(); far >= 2*day {
		return fmt.Sprintf("%d days %s", far.Round(day)/day, side)
	}
	return fmt.Sprintf("%s %s", observed.RoundedOffset(offset).Abs(), side)
}

func reportsOfSendersAreNotRead(v View) (finding.Finding, bool) {
	was := finding.Condition(v.Instrument.Status.Conditions, v1alpha1.ConditionClockTrusted)
	if v.Bus.Up || was == nil || v.Now.Sub(v.Bus.Since) > observed.HeartbeatAge {
		return finding.Finding{}, false
	}
	return finding.From(was), true
}

func senderIsSilent(v View) (finding.Finding, bool) {
	switch {
	case v.Sender == nil && len(v.Instrument.Spec.Listeners) == 0:
		return finding.Unknown(v1alpha1.ReasonNoListeners, "it has no listeners: there is no sender that would report its clock"), true
	case v.Sender == nil:
		return finding.Unknown(v1alpha1.ReasonNoHeartbeat, "its sender reports no clock: substorm send does, with a queue and the framing LengthPrefixed"), true
	case v.Now.Sub(v.Sender.Seen) > observed.HeartbeatAge:
		return finding.Unknown(v1alpha1.ReasonNoHeartbeat, fmt.Sprintf(
			"its sender reported last at %s: look at the sender and its link to the gateways", v.Sender.Seen.UTC().Format(time.RFC3339))), true
	default:
		return finding.Finding{}, false
	}
}

func clockIsNotMeasured(v View) (finding.Finding, bool) {
	return finding.Unknown(v1alpha1.ReasonNotMeasured, "its sender has not compared clocks yet"), v.Sender.ClockOffset == nil
}

// offset of the sender's clock, and by how much the measurement may be wrong.
func (v View) offset() (offset, uncertain time.Duration) {
	if v.Sender.RoundTrip != nil {
		uncertain = time.Duration(*v.Sender.RoundTrip) / 2
	}
	return time.Duration(*v.Sender.ClockOffset), uncertain
}

// clockIsOff: by more than the uncertainty of the measurement.
func clockIsOff(v View) (finding.Finding, bool) {
	offset, uncertain := v.offset()
	return finding.Bad(v1alpha1.ReasonClockOff, fmt.Sprintf(
			"the sender's clock is %s the gateways', more than spec.clock.maxSkew (%s): set it, by NTP or GPS; data is received and keeps its times",
			sideOf(offset), v.maxSkew())),
		offset.Abs()-uncertain > v.maxSkew()
}

func clockIsUncertain(v View) (finding.Finding, bool) {
	offset, uncertain := v.offset()
	return finding.Unknown(v1alpha1.ReasonUncertain, fmt.Sprintf(
			"the sender's clock may be off by %s, right to within %s: the link is too slow to tell", observed.RoundedOffset(offset).Abs(), observed.RoundedOffset(uncertain))),
		offset.Abs() > v.maxSkew()
}

// sender is the displayed state of the sender, until it is long gone.
func (v View) sender() *v1alpha1.SenderStatus {
	said := v.Sender
	if said == nil {
		return nil
	}
	status := &v1alpha1.SenderStatus{
		ReportTime: *observed.Rounded(said.Seen), QueueObjectCount: said.QueueObjects, QueueBytes: said.QueueBytes,
		SetAsideCount: said.SetAside, Version: said.Version[:min(len(said.Version), maxVersion)],
	}
	if said.ClockOffset != nil {
		status.ClockOffset = &metav1.Duration{Duration: observed.RoundedOffset(time.Duration(*said.ClockOffset))}
	}
	if said.Oldest != nil {
		status.OldestTime = new(metav1.NewTime(said.Oldest.UTC().Truncate(time.Second)))
	}
	return status
}

// maxVersion is how long status.sender.version may be, in bytes.
const maxVersion = 128
