// SPDX-License-Identifier: Apache-2.0

package gaps

import (
	"cmp"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Evidence is what says why something is missing.
type Evidence struct {
	// Received and Stored are the instrument's columns of the ledger, of the day by
	// receipt.
	Received wire.Totals `json:"received"`
	Stored   wire.Totals `json:"stored"`
	// Refused are the instants of the last refusals of the instrument, or of a sender that was
	// nearly the instrument.
	Refused []time.Time `json:"refused,omitempty"`
	// Sender is what the instrument's senders last said of themselves; nil where none
	// ever did.
	Sender *wire.SenderStatus `json:"sender,omitempty"`
	// Others are the days of the other instruments of the station.
	Others []wire.DayGaps `json:"others,omitempty"`
}

// most of a gap must be explained before a cause stands for all of it.
func isMostOf(part, whole time.Duration) bool { return part*5 >= whole*4 }

// explain says why each gap is one.
func (p *planner) explain(gaps []wire.MissingGap) {
	lost, refused, unread := p.counts()
	// Counts are of the whole day: the largest gap is explained first.
	order := make([]*wire.MissingGap, len(gaps))
	for i := range gaps {
		order[i] = &gaps[i]
	}
	slices.SortStableFunc(order, func(a, b *wire.MissingGap) int { return cmp.Compare(b.Missing, a.Missing) })
	for _, g := range order {
		g.Cause = p.cause(*g, &lost, &refused, &unread)
	}
}

// tryDeduct says whether a count explains at least half of a gap, and takes it away.
func tryDeduct(count *uint64, missing int64) bool {
	if *count == 0 || *count*2 < uint64(missing) {
		return false
	}
	*count -= min(*count, uint64(missing))
	return true
}

func (p *planner) cause(g wire.MissingGap, lost, refused, unread *uint64) wire.GapCause {
	from, to := g.From, g.Ends(p.Now)
	archived := p.Channels[g.Channel]
	covered := func(spans []wire.TimeSpan) bool {
		return isMostOf(total(clipSpans(merge(spans, p.overdue()), from, to))+2*p.cadence, to.Sub(from))
	}
	switch {
	case len(archived.Retracted) > 0 && covered(archived.Retracted):
		return wire.GapRetracted
	case len(archived.Undecodable) > 0 && covered(archived.Undecodable), tryDeduct(unread, g.Missing):
		return wire.GapUndecodable
	case tryDeduct(lost, g.Missing):
		return wire.GapLost
	case p.refusedIn(from, to), tryDeduct(refused, g.Missing):
		return wire.GapRefused
	case p.isLinkDown(from, to):
		return wire.GapLink
	default:
		return wire.GapInstrument
	}
}

// lostCauses are the causes of data that was received and lost here, or dropped before it was safe. Data
// that a sender sends again does not count as lost.
var lostCauses = []wire.Cause{wire.CauseCorrupt, wire.CauseSpoolAbandoned, wire.CauseKernelBuffer, wire.CauseBacklog, wire.CauseTruncated,
	wire.CauseStreamGone, wire.CauseMessageDeleted, wire.CauseStreamFull, wire.CauseNoSpace}

// refusedCauses are those for which a gateway would not have it.
var refusedCauses = []wire.Cause{wire.CauseObjectTooLarge, wire.CauseRateLimited, wire.CauseNameConflict, wire.CausePreconditionFailed, wire.CauseCrossOrigin,
	wire.CauseWrongProtocol, wire.CauseDigestMismatch,
	wire.CauseTooManyConnections, wire.CauseDisplaced, wire.CauseBadRequest, wire.CauseBadToken, wire.CauseBadCertificate, wire.CauseRetired, wire.CauseQuarantined}

func (p *planner) counts() (lost, refused, unread uint64) {
	in, stored := p.Evidence.Received, p.Evidence.Stored
	lost = in.Unknown
	for _, counts := range []map[wire.Cause]uint64{in.Unfinished, in.Dropped, stored.Dropped} {
		for _, cause := range lostCauses {
			lost += counts[cause]
		}
		for _, cause := range refusedCauses {
			refused += counts[cause]
		}
		unread += counts[wire.CauseUndecodable]
	}
	return lost, refused, unread
}

func (p *planner) refusedIn(from, to time.Time) bool {
	return slices.ContainsFunc(p.Evidence.Refused, func(at time.Time) bool { return !at.Before(from) && !at.After(to.Add(p.overdue())) })
}

// isLinkDown says whether the instrument could not reach us: it still has what is missing;
// its sender was not heard either; or all instruments of its station were silent.
func (p *planner) isLinkDown(from, to time.Time) bool {
	if s := p.Evidence.Sender; s != nil {
		owes := s.QueueObjects > 0 && (s.Oldest == nil || s.Oldest.Before(to))
		unheard := s.ReportedAt.Before(from.Add(p.overdue()))
		if owes || unheard {
			return true
		}
	}
	if len(p.Evidence.Others) == 0 {
		return false
	}
	for _, other := range p.Evidence.Others {
		var silent []wire.TimeSpan
		for _, g := range other.Gaps {
			if g.ClosedAt == nil {
				silent = append(silent, wire.TimeSpan{From: g.From, To: g.Ends(p.Now)})
			}
		}
		if !isMostOf(total(clipSpans(merge(silent, p.overdue()), from, to)), to.Sub(from)) {
			return false
		}
	}
	return true
}
