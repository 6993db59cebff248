// SPDX-License-Identifier: Apache-2.0

package console

import (
	"time"

	"github.com/substorm/substorm/internal/observing"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// underEmbargo is the state of an instrument whose new data the reader may not see.
const underEmbargo = "UnderEmbargo"

// mirrored is the state of an instrument of another Site, which reports there whether its data
// arrives.
const mirrored = "Mirrored"

// State is whether data of an instrument arrives: a reason of the condition DataFlowing.
type State struct {
	Reason string
	// Word and Sign say it to people: the color is never all that does.
	Word, Sign string
}

// states in the order in which they are counted.
var states = []State{
	{v1alpha1.ReasonFlowing, "flowing", "●"},
	{v1alpha1.ReasonOverdue, "overdue", "▲"},
	{v1alpha1.ReasonNotObserving, "not observing", "◐"},
	{v1alpha1.ReasonNeverSeen, "nothing received yet", "○"},
	{v1alpha1.ReasonNoReport, "no report", "?"},
	{v1alpha1.ReasonNoListeners, "imported", "▤"},
	{underEmbargo, "under embargo", "◌"},
	{mirrored, "of other sites", "⇄"},
}

// stateOf returns the reason that the operator gives for DataFlowing of an accepted Instrument,
// from what gateways report: when they last received something of it, and when those of its
// pool last reported at all. Data that was never received is not distinguished from data that
// is not due yet: the registry does not say when an Instrument was created.
func stateOf(in *wire.InstrumentEntry, last, reported, now time.Time) string {
	due := observing.Due(time.Duration(in.CadenceMillis) * time.Millisecond)
	schedule, err := observing.Of(in.Observes)
	switch {
	case in.Origin != "":
		return mirrored
	case in.Retired, in.Maintenance, err == nil && schedule.Rests(now, last.Add(due), due):
		return v1alpha1.ReasonNotObserving
	case len(in.Listeners) == 0:
		return v1alpha1.ReasonNoListeners
	case in.Gateway == "", now.Sub(reported) > observing.Silence:
		return v1alpha1.ReasonNoReport
	case last.IsZero():
		return v1alpha1.ReasonNeverSeen
	case now.After(last.Add(due)):
		return v1alpha1.ReasonOverdue
	default:
		return v1alpha1.ReasonFlowing
	}
}
