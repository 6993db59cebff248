// SPDX-License-Identifier: Apache-2.0

// Package feeds makes the status of a Feed and of a FeedConsumer of what its programs report, and of what stands in JetStream.
package feeds

import (
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
)

// FeedFigures are the counts of a Feed's streams.
type FeedFigures struct {
	Messages int64 `json:"messages"`
	// Bytes is nil if the Feed is a selection, EstimatedBytes if it is none.
	Bytes          *int64                 `json:"bytes,omitempty"`
	EstimatedBytes *int64                 `json:"estimatedBytes,omitempty"`
	First          *v1alpha1.FeedPosition `json:"first,omitempty"`
	Last           *v1alpha1.FeedPosition `json:"last,omitempty"`
	PerMinute      int64                  `json:"perMinute"`
}

// FeedView is everything that a Feed's status is made from.
type FeedView struct {
	Now     time.Time
	Feed    *v1alpha1.Feed
	Site    *v1alpha1.Site
	Verdict accept.FeedVerdict
	Bus     observed.Bus
	// Entry is the entry in the registry; nil if there is none.
	Entry *wire.FeedEntry
	// Stream is what was found of the Feed's own one; nil if it was not checked.
	Stream *accept.StreamFound
	// Figures are nil if the messages were not counted yet.
	Figures *FeedFigures
	// Consumers of the Feed, and the lag of those that are reported of.
	Consumers map[string]time.Duration
}

// FeedStatus returns the status, and after how long to look again.
func FeedStatus(v FeedView) (v1alpha1.FeedStatus, time.Duration) {
	c := finding.Conditions{Now: v.Now, Generation: v.Feed.Generation, Old: v.Feed.Status.Conditions}
	c.Set(v1alpha1.ConditionAccepted, v.Verdict.Finding)
	if v.Verdict.Served {
		c.Set(v1alpha1.ConditionInstrumentsSelected, v.Verdict.Selected)
	}
	patienceEnds := c.Finish(finding.First(v, []finding.Check[FeedView]{
		func(v FeedView) (finding.Finding, bool) { return v.Verdict.Finding, !v.Verdict.OK() },
		feedIsAsItWas,
		feedIsNotWritten,
		feedStreamIsAmiss,
	}, finding.Good(v1alpha1.ReasonReady, "it can be followed: "+v.Verdict.Message)))
	was := &v.Feed.Status
	status := v1alpha1.FeedStatus{
		ObservedGeneration: v.Feed.Generation, Conditions: c.All,
		InstrumentCount: new(int32(len(v.Verdict.Instruments))), ConsumerCount: new(int32(len(v.Consumers))), Slowest: v.slowest(),
		MessageCount: was.MessageCount, Bytes: was.Bytes, EstimatedBytes: was.EstimatedBytes, First: was.First, Last: was.Last, MessagesPerMinute: was.MessagesPerMinute,
	}
	status.Streams = was.Streams // they cannot be removed without the Site
	if v.Site != nil {
		status.Streams = bus.StreamsOf(v.Site, v.Feed)
	}
	if f := v.Figures; f != nil {
		status.MessageCount, status.Bytes, status.EstimatedBytes = new(f.Messages), f.Bytes, f.EstimatedBytes
		status.First, status.Last, status.MessagesPerMinute = f.First, f.Last, new(f.PerMinute)
	}
	return status, finding.Soonest(patienceEnds, observed.FiguresEvery)
}

// feedIsAsItWas: while JetStream is away, and while the operator starts, nothing is
// known to have changed.
func feedIsAsItWas(v FeedView) (finding.Finding, bool) {
	was := finding.Condition(v.Feed.Status.Conditions, v1alpha1.ConditionReady)
	if v.Bus.Up || was == nil || was.ObservedGeneration != v.Feed.Generation {
		return finding.Finding{}, false
	}
	return finding.From(was), true
}

func feedIsNotWritten(v FeedView) (finding.Finding, bool) {
	if v.Entry != nil && v.Entry.UID == string(v.Feed.UID) && v.Entry.Generation == v.Feed.Generation {
		return finding.Finding{}, false
	}
	return notWritten(v.Feed.Generation, v.Bus, v.Feed.Spec.SiteRef.Name), true
}

func notWritten(generation int64, bus observed.Bus, site string) finding.Finding {
	if !bus.Up {
		return finding.Bad(v1alpha1.ReasonUnreachable, fmt.Sprintf(
			"generation %d waits for the registry: the operator does not reach JetStream, see the conditions of Site %q", generation, site))
	}
	return finding.Bad(v1alpha1.ReasonReconciling, fmt.Sprintf("generation %d is being written to the registry", generation))
}

func feedStreamIsAmiss(v FeedView) (finding.Finding, bool) {
	switch {
	case v.Feed.Spec.Stream == nil:
		return finding.Finding{}, false
	case v.Stream == nil:
		return finding.Bad(v1alpha1.ReasonReconciling, fmt.Sprintf("stream %s is being made", wire.FeedStream(v.Site.Spec.Code, v.Feed.Name))), true
	case v.Stream.Problem != nil:
		return *v.Stream.Problem, true
	default:
		return finding.Finding{}, false
	}
}

// slowest is the consumer with the greatest lag; of equal ones the first by name.
func (v FeedView) slowest() *v1alpha1.SlowestConsumer {
	var s *v1alpha1.SlowestConsumer
	for name, lag := range v.Consumers {
		seconds := int64(lag / time.Second)
		if seconds > 0 && (s == nil || seconds > s.LagSeconds || seconds == s.LagSeconds && name < s.Name) {
			s = &v1alpha1.SlowestConsumer{Name: name, LagSeconds: seconds}
		}
	}
	return s
}

// StreamRefused says that JetStream does not make or change a stream, or a durable.
func StreamRefused(what, problem string) finding.Finding {
	return finding.Bad(v1alpha1.ReasonStreamRefused, fmt.Sprintf(
		"JetStream refuses %s: %s; see that spec.stream asks for no more replicas and bytes than the servers and the account have", what, problem))
}

// StreamSilent says that JetStream said nothing of a stream, or a durable, in time.
func StreamSilent(what string, problem error) finding.Finding {
	return finding.Bad(v1alpha1.ReasonUnreachable, fmt.Sprintf(
		"%s does not answer (%v), and is looked at again: see that most of the servers that hold it are up", what, problem))
}
