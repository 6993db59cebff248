// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/feeds"
	"github.com/substorm/substorm/operator/plan/finding"
)

// feedFacts are the operator's knowledge about a Site's Feeds and FeedConsumers.
type feedFacts struct {
	// sign says that plan is new.
	sign chan struct{}
	// plan is nil until the registry's controller has judged the Site.
	plan      *bus.Plan
	feeds     map[string]feedJudgement
	consumers map[string]consumerJudgement
	found     busFound
	swept     swept
	figures   map[string]feeds.FeedFigures
}

type feedJudgement struct {
	uid        types.UID
	generation int64
	verdict    accept.FeedVerdict
}

type consumerJudgement struct {
	uid        types.UID
	generation int64
	verdict    accept.ConsumerVerdict
}

// busFound is the current state in JetStream of what is planned.
type busFound struct {
	streams map[string]accept.StreamFound
	// durables by FeedConsumer: of several the worst.
	durables map[string]finding.Finding
	// positions by FeedConsumer.
	positions map[string]wire.PositionCursor
}

// swept is the result of removing streams.
type swept struct {
	// leaving says it of the streams of Feeds that are being deleted, by Feed.
	leaving map[string]finding.Finding
	// doomed are streams of Feeds that are gone that could not be removed; whole says that
	// all streams were looked at.
	doomed []string
	whole  bool
}

func newFeedFacts() feedFacts {
	return feedFacts{sign: make(chan struct{}, 1), feeds: map[string]feedJudgement{}, consumers: map[string]consumerJudgement{}}
}

// wantBus sets the plan for JetStream from now on.
func (f *facts) wantBus(p bus.Plan) {
	f.mu.Lock()
	same := f.feeds.plan != nil && reflect.DeepEqual(*f.feeds.plan, p)
	if !same {
		f.feeds.plan = &p
	}
	f.mu.Unlock()
	if same {
		return
	}
	select {
	case f.feeds.sign <- struct{}{}:
	default:
	}
}

func (f *facts) busPlan() *bus.Plan {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.feeds.plan
}

// judgeFeeds takes all verdicts, and returns the names of those that are new or gone.
func (f *facts) judgeFeeds(in entries.Input) (feeds, consumers []string) {
	nextFeeds := make(map[string]feedJudgement, len(in.Feeds))
	for i := range in.Feeds {
		nextFeeds[in.Feeds[i].Name] = feedJudgement{in.Feeds[i].UID, in.Feeds[i].Generation, in.FeedsAre[in.Feeds[i].Name]}
	}
	nextConsumers := make(map[string]consumerJudgement, len(in.Consumers))
	for i := range in.Consumers {
		c := &in.Consumers[i]
		if v, judged := in.ConsumersAre[c.Name]; judged {
			nextConsumers[c.Name] = consumerJudgement{c.UID, c.Generation, v}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	feeds, consumers = differingKeys(f.feeds.feeds, nextFeeds), differingKeys(f.feeds.consumers, nextConsumers)
	f.feeds.feeds, f.feeds.consumers = nextFeeds, nextConsumers
	maps.DeleteFunc(f.waiting[kindFeedConsumer], func(name string, _ bool) bool { _, stays := nextConsumers[name]; return !stays })
	return feeds, consumers
}

// differingKeys returns the keys whose values are not the same in two maps.
func differingKeys[V any](before, after map[string]V) []string {
	var names []string
	for name, v := range after {
		if old, known := before[name]; !known || !reflect.DeepEqual(old, v) {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, stays := after[name]; !stays {
			names = append(names, name)
		}
	}
	return names
}

// readFeed fills in the known facts about a Feed; false if this generation was not judged yet.
func (f *facts) readFeed(view *feeds.FeedView) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := view.Feed.Name
	j, judged := f.feeds.feeds[name]
	view.Verdict, view.Bus = j.verdict, f.bus
	if entry, exists := f.registry.Feeds[name]; exists {
		view.Entry = &entry
	}
	if view.Site != nil {
		if found, looked := f.feeds.found.streams[wire.FeedStream(view.Site.Spec.Code, name)]; looked {
			view.Stream = &found
		}
	}
	if figures, counted := f.feeds.figures[name]; counted {
		view.Figures = &figures
	}
	return judged && j.uid == view.Feed.UID && j.generation == view.Feed.Generation
}

// readConsumer fills in the known facts about a FeedConsumer; false if this generation was not judged yet.
func (f *facts) readConsumer(view *feeds.ConsumerView) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := view.Consumer.Name
	j, judged := f.feeds.consumers[name]
	view.Verdict, view.Bus = j.verdict, f.bus
	if entry, exists := f.registry.Consumers[name]; exists {
		view.Entry = &entry
	}
	if found, looked := f.feeds.found.durables[name]; looked {
		view.Durables = &found
	}
	return judged && j.uid == view.Consumer.UID && j.generation == view.Consumer.Generation
}

// foundStreams returns the findings for Feeds' and consumers' own streams.
func (f *facts) foundStreams() map[string]accept.StreamFound {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.feeds.found.streams)
}

// positionOf returns the last known position of a FeedConsumer.
func (f *facts) positionOf(consumer string) wire.PositionCursor {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.feeds.found.positions[consumer]
}

// setFound stores the current streams and durables, and returns the names of the streams and consumers that changed.
func (f *facts) setFound(found busFound) (streams, consumers []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	streams = differingKeys(f.feeds.found.streams, found.streams)
	consumers = differingKeys(f.feeds.found.durables, found.durables)
	f.feeds.found = found
	return streams, consumers
}

// setSwept stores what became of streams that should go, and returns the names of the Feeds for which that changed.
func (f *facts) setSwept(is swept) (feeds []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	feeds = differingKeys(f.feeds.swept.leaving, is.leaving)
	f.feeds.swept = is
	return feeds
}

// removed returns what became of the stream of a Feed that is being deleted; nil if it was not checked yet.
func (f *facts) removed(feed string) *finding.Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	if found, looked := f.feeds.swept.leaving[feed]; looked {
		return &found
	}
	return nil
}

// doomed returns the streams of deleted Feeds that could not be removed; nil if no full check has finished since JetStream was reached.
func (f *facts) doomed() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.feeds.swept.whole {
		return nil
	}
	return append([]string{}, f.feeds.swept.doomed...)
}

// allCounted says whether each Feed's messages were counted before.
func (f *facts) allCounted(p bus.Plan) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for feed := range p.Selections {
		if _, counted := f.feeds.figures[feed]; !counted {
			return false
		}
	}
	return true
}

func (f *facts) figuresOf() map[string]feeds.FeedFigures {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.feeds.figures
}

func (f *facts) setFigures(figures map[string]feeds.FeedFigures) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.feeds.figures = figures
}

// feedNames are the Feeds and the FeedConsumers that were judged.
func (f *facts) feedNames() (feeds, consumers []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sortedKeys(f.feeds.feeds), sortedKeys(f.feeds.consumers)
}
