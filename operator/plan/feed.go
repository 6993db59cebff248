// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// FeedVerdict says whether a Feed is accepted, and what it selects.
type FeedVerdict struct {
	finding.Finding
	// Instruments that it selects and that gateways know, by name and in order, and
	// then its leaves as wire.LeafInstruments.
	Instruments []string `json:"instruments,omitempty"`
	// Selected says whether the selector matches anything; zero where the Feed is not served.
	Selected finding.Finding `json:"selected,omitzero"`
	// Served: feed servers know it as it is declared. Where it is not, and Absent,
	// what they know of it stays.
	Served bool `json:"served,omitempty"`
	Absent bool `json:"absent,omitempty"`
	// Everything: its selector selects all Instruments of the Site, those to come too.
	Everything bool `json:"everything,omitempty"`
}

// StreamFound is what was found of a stream that a Feed or a consumer has to itself.
type StreamFound struct {
	// Problem is why the stream does not stand as planned; nil where it does.
	Problem *finding.Finding       `json:"problem,omitempty"`
	Storage v1alpha1.StreamStorage `json:"storage,omitempty"`
}

// feedApplication is one Feed that wants to be accepted.
type feedApplication struct {
	site         *v1alpha1.Site
	siteAccepted finding.Finding
	feed         *v1alpha1.Feed
	selector     labels.Selector
	selectorErr  error
	instruments  []string
	found        StreamFound
}

// The order is that in which a person can put things right.
var feedChecks = []finding.Check[feedApplication]{
	feedIsUnreadable,
	feedHasNoSite,
	feedsSiteIsNotAccepted,
	selectorIsInvalid,
	feedsLeafIsMissing,
	storageChanged,
}

// AcceptFeeds judges the Feeds of one Site, by name. Listed are the Instruments
// that are, or will be, in the registry: who may read others is not known. Found
// holds the Feeds' own streams by name; nothing where nobody has looked yet.
func AcceptFeeds(site *v1alpha1.Site, accepted finding.Finding, feeds []v1alpha1.Feed, instruments []v1alpha1.Instrument,
	listed map[string]bool, found map[string]StreamFound,
) map[string]FeedVerdict {
	verdicts := make(map[string]FeedVerdict, len(feeds))
	index := indexLabels(instruments, listed)
	everything := index.selected(labels.Everything()) // Feeds share it
	for i := range feeds {
		in := feedApplication{site: site, siteAccepted: accepted, feed: &feeds[i]}
		in.selector, in.selectorErr = metav1.LabelSelectorAsSelector(&feeds[i].Spec.Selector)
		all := in.selectorErr == nil && in.selector.Empty()
		switch leaves := leavesOf(site, &feeds[i]); {
		case in.selectorErr != nil:
		case all && len(leaves) == 0:
			in.instruments = everything
		case all:
			in.instruments = slices.Concat(everything, leaves)
		default:
			in.instruments = append(index.selected(in.selector), leaves...)
		}
		if site != nil {
			in.found = found[wire.FeedStream(site.Spec.Code, feeds[i].Name)]
		}
		f := finding.First(in, feedChecks, finding.Good(v1alpha1.ReasonAccepted, fmt.Sprintf("it selects %s", instrumentCount(len(in.instruments)))))
		v := FeedVerdict{
			Finding: f, Instruments: in.instruments, Everything: all,
			Served: f.OK() || f.Reason == v1alpha1.ReasonImmutable || f.Reason == v1alpha1.ReasonLeafNotFound,
			Absent: f.Reason == v1alpha1.ReasonInvalidSelector || f.Reason == v1alpha1.ReasonUnreadable,
		}
		if v.Served {
			v.Selected = in.selects()
		}
		verdicts[feeds[i].Name] = v
	}
	return verdicts
}

// Listed are the Instruments that the registry has, or will have.
func Listed(instruments []v1alpha1.Instrument, verdicts map[string]Verdict, current map[string]wire.InstrumentEntry) map[string]bool {
	listed := map[string]bool{}
	for i := range instruments {
		name := instruments[i].Name
		_, exists := current[name]
		listed[name] = verdicts[name].Stands() || verdicts[name].Absent && exists
	}
	return listed
}

// SelectAlike says whether each Feed selects an Instrument with some labels as it does one with others.
func SelectAlike(feeds []v1alpha1.Feed, a, b map[string]string) bool {
	for i := range feeds {
		selector, err := metav1.LabelSelectorAsSelector(&feeds[i].Spec.Selector)
		if err == nil && selector.Matches(labels.Set(a)) != selector.Matches(labels.Set(b)) {
			return false
		}
	}
	return true
}

func instrumentCount(n int) string {
	if n == 1 {
		return "1 instrument"
	}
	return fmt.Sprintf("%d instruments", n)
}

func feedHasNoSite(in feedApplication) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonSiteNotFound, fmt.Sprintf(
		"Site %q does not exist in this namespace: create it, or make a Feed that names another one", in.feed.Spec.SiteRef.Name)), in.site == nil
}

func feedsSiteIsNotAccepted(in feedApplication) (finding.Finding, bool) {
	return siteIsNotAccepted(application{site: in.site, siteAccepted: in.siteAccepted})
}

func selectorIsInvalid(in feedApplication) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonInvalidSelector, fmt.Sprintf(
		"spec.selector is no label selector: %v; what feed servers knew of the Feed before stays", in.selectorErr)), in.selectorErr != nil
}

func storageChanged(in feedApplication) (finding.Finding, bool) {
	if in.feed.Spec.Stream == nil || in.found.Storage == "" || in.found.Storage == in.feed.Spec.Stream.Storage {
		return finding.Finding{}, false
	}
	return finding.Bad(v1alpha1.ReasonImmutable, fmt.Sprintf(
		"stream %s has storage %s, and JetStream cannot change that to %s: set spec.stream.storage back, or make another Feed; the rest of the Feed is as declared",
		wire.FeedStream(in.site.Spec.Code, in.feed.Name), in.found.Storage, in.feed.Spec.Stream.Storage)), true
}

// selects says whether the selector matches anything. A Feed that selects nothing is served
// all the same: an Instrument that comes later belongs to it at once.
func (in feedApplication) selects() finding.Finding {
	switch {
	case len(in.instruments) > 0:
		return finding.Good(v1alpha1.ReasonSelected, fmt.Sprintf("it selects %s", instrumentCount(len(in.instruments))))
	case in.selector.Empty():
		return finding.Bad(v1alpha1.ReasonSelectsNothing, fmt.Sprintf("no Instrument of Site %q is accepted: what comes later belongs to the Feed at once", in.site.Name))
	default:
		return finding.Bad(v1alpha1.ReasonSelectsNothing, fmt.Sprintf(
			"no Instrument of Site %q that is accepted has the labels %q: label some, or change spec.selector; what comes later belongs to the Feed at once",
			in.site.Name, in.selector.String()))
	}
}

// carries says which kinds of messages a Feed carries.
func carries(feed *v1alpha1.Feed) (notices, telemetry bool) {
	if len(feed.Spec.MessageTypes) == 0 {
		return true, true
	}
	return slices.Contains(feed.Spec.MessageTypes, v1alpha1.MessageNotices), slices.Contains(feed.Spec.MessageTypes, v1alpha1.MessageTelemetry)
}

// feedStreams are the streams that a Feed's notices and telemetry lie in; empty
// where it does not carry them.
func feedStreams(site *v1alpha1.Site, feed *v1alpha1.Feed) (notices, telemetry string) {
	code := site.Spec.Code
	notices, telemetry = wire.NoticeStream(code), wire.ObservationStream(code)
	if feed.Spec.Stream != nil {
		notices = wire.FeedStream(code, feed.Name)
		telemetry = notices
	}
	n, t := carries(feed)
	if !n {
		notices = ""
	}
	if !t {
		telemetry = ""
	}
	return notices, telemetry
}

// feedEntry is a Feed as feed servers know it.
func feedEntry(site *v1alpha1.Site, feed *v1alpha1.Feed, v FeedVerdict, revision int64) wire.FeedEntry {
	entry := wire.FeedEntry{
		UID: string(feed.UID), Generation: feed.Generation, Revision: revision,
		Feed: feed.Name, Instruments: v.selects(), Channels: slices.Sorted(slices.Values(feed.Spec.Channels)),
	}
	if entry.Instruments == nil {
		entry.Instruments = []string{}
	}
	entry.Notices, entry.Telemetry = feedStreams(site, feed)
	entry.Backfill = backfills(feed)
	if feed.Spec.Access != nil {
		entry.Live = string(feed.Spec.Access.Live)
	}
	return entry
}

// StreamSource is a stream that another one takes messages from, where their
// subject matches.
type StreamSource struct {
	Stream  string `json:"stream"`
	Subject string `json:"subject"`
}

// OwnStream is a stream that a Feed or a consumer has to itself. When it is full
// the oldest go.
type OwnStream struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Sources of a Feed's, or Subjects of a consumer's.
	Sources    []StreamSource         `json:"sources,omitempty"`
	Subjects   []string               `json:"subjects,omitempty"`
	MaxBytes   int64                  `json:"maxBytes"`
	MaxAge     time.Duration          `json:"maxAge,omitempty"`
	PerSubject int64                  `json:"perSubject,omitempty"`
	Replicas   int                    `json:"replicas"`
	Storage    v1alpha1.StreamStorage `json:"storage"`
	Duplicates time.Duration          `json:"duplicates"`
	// Deletion is what becomes of it without its owner.
	Deletion v1alpha1.DeletionPolicy `json:"deletion"`
}

// feedStream is a Feed's own stream; nil where it has none.
func feedStream(site *v1alpha1.Site, feed *v1alpha1.Feed, v FeedVerdict) *OwnStream {
	spec := feed.Spec.Stream
	if spec == nil || !v.Served {
		return nil
	}
	return &OwnStream{
		Name:        wire.FeedStream(site.Spec.Code, feed.Name),
		Description: "Feed " + feed.Name + " of Site " + site.Spec.Code,
		Sources:     feedSources(site, feed, v),
		MaxBytes:    spec.MaxSize.Value(),
		MaxAge:      spec.Retention.Duration,
		Replicas:    int(spec.Replicas),
		Storage:     spec.Storage,
		Duplicates:  min(duplicateWindow, spec.Retention.Duration),
		Deletion:    cmp.Or(feed.Spec.DeletionPolicy, v1alpha1.DeletionRetain),
	}
}

// feedSources: each instrument (and channel) is a source of its own, which
// JetStream continues where it is when another one comes or goes; one source with
// another filter would begin anew, and bring everything a second time. A Feed of everything
// has one source for all of the Site's instruments. Who may read what is no matter of the
// stream, but of what is given from it. A Feed that selects nothing has a source that brings
// nothing: without any, JetStream would take the stream's name for its subject.
func feedSources(site *v1alpha1.Site, feed *v1alpha1.Feed, v FeedVerdict) []StreamSource {
	code := site.Spec.Code
	notices, telemetry := carries(feed)
	var all []StreamSource
	if notices {
		for _, subject := range noticeSubjects(code, v.selects(), backfills(feed)) {
			all = append(all, StreamSource{wire.NoticeStream(code), subject})
		}
	}
	if telemetry {
		for _, subject := range observationSubjects(code, v.selects(), feed.Spec.Channels) {
			all = append(all, StreamSource{wire.ObservationStream(code), subject})
		}
	}
	if len(all) == 0 {
		all = append(all, StreamSource{wire.ObservationStream(code), wire.NoObservations(code)})
	}
	return all
}

// backfills says whether a Feed carries notices of backfill.
func backfills(feed *v1alpha1.Feed) bool { return feed.Spec.Backfill == v1alpha1.BackfillInclude }

// selects are the Feed's instruments as they are listed where all of the Site's need no names.
func (v FeedVerdict) selects() []string {
	if !v.Everything {
		return v.Instruments
	}
	return unnamed(v.Instruments)
}

func noticeSubjects(code string, instruments []string, backfill bool) []string {
	var all []string
	for _, name := range instruments {
		all = append(all, wire.SelectedNotices(code, name, backfill)...)
	}
	return all
}

// observationSubjects match the telemetry of instruments: of some channels, or of all.
func observationSubjects(code string, instruments, channels []string) []string {
	channels = slices.Sorted(slices.Values(channels))
	var all []string
	for _, name := range instruments {
		all = append(all, wire.SelectedObservations(code, name, channels)...)
	}
	return all
}

// FeedSelection is what a Feed selects of one stream.
type FeedSelection struct {
	Stream   string   `json:"stream"`
	Subjects []string `json:"subjects"`
	// Whole: the stream is the Feed's own.
	Whole bool `json:"whole,omitempty"`
}

// FeedSelections are what a Feed selects of each of its streams.
func FeedSelections(site *v1alpha1.Site, feed *v1alpha1.Feed, v FeedVerdict) []FeedSelection {
	code := site.Spec.Code
	notices, telemetry := feedStreams(site, feed)
	subjects := map[string][]string{}
	if notices != "" {
		subjects[notices] = append(subjects[notices], noticeSubjects(code, v.selects(), backfills(feed))...)
	}
	if telemetry != "" {
		subjects[telemetry] = append(subjects[telemetry], observationSubjects(code, v.selects(), feed.Spec.Channels)...)
	}
	var all []FeedSelection
	for _, stream := range streamsOf(site, feed) {
		all = append(all, FeedSelection{Stream: stream, Subjects: subjects[stream], Whole: feed.Spec.Stream != nil})
	}
	return all
}
