// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"fmt"
	"slices"

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
	// Served: feed servers know it as it is declared. If it is not Served but Absent, its current entry stays.
	Served bool `json:"served,omitempty"`
	Absent bool `json:"absent,omitempty"`
	// Everything: its selector selects all Instruments of the Site, those to come too.
	Everything bool `json:"everything,omitempty"`
}

// StreamFound is the state of a stream that belongs to one Feed or consumer.
type StreamFound struct {
	// Problem is why the stream is not as planned; nil if it is.
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

// Feeds judges the Feeds of one Site, by name. Listed are the Instruments that are, or will be, in the registry: who may read others is not
// known. Found holds the Feeds' own streams by name; empty if they were not checked yet.
func Feeds(site *v1alpha1.Site, accepted finding.Finding, feeds []v1alpha1.Feed, instruments []v1alpha1.Instrument,
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
	return SiteIsNotAccepted(in.site, in.siteAccepted)
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

// Carries says which kinds of messages a Feed carries.
func Carries(feed *v1alpha1.Feed) (notices, telemetry bool) {
	if len(feed.Spec.MessageTypes) == 0 {
		return true, true
	}
	return slices.Contains(feed.Spec.MessageTypes, v1alpha1.MessageNotices), slices.Contains(feed.Spec.MessageTypes, v1alpha1.MessageTelemetry)
}

// Backfills says whether a Feed carries notices of backfill.
func Backfills(feed *v1alpha1.Feed) bool { return feed.Spec.Backfill == v1alpha1.BackfillInclude }

// Selects are the Feed's instruments as they are listed where all of the Site's need no names.
func (v FeedVerdict) Selects() []string {
	if !v.Everything {
		return v.Instruments
	}
	return unnamed(v.Instruments)
}

// leavesOf are those of a Feed's leaves that its Site has, as wire.LeafInstruments.
func leavesOf(site *v1alpha1.Site, feed *v1alpha1.Feed) []string {
	var all []string
	for _, code := range slices.Sorted(slices.Values(feed.Spec.Leaves)) {
		if hasLeaf(site, code) {
			all = append(all, wire.LeafInstruments(code))
		}
	}
	return all
}

func hasLeaf(site *v1alpha1.Site, code string) bool {
	return site != nil && slices.ContainsFunc(site.Spec.Leaves, func(l v1alpha1.Leaf) bool { return l.Code == code })
}

func feedsLeafIsMissing(in feedApplication) (finding.Finding, bool) {
	for _, code := range slices.Sorted(slices.Values(in.feed.Spec.Leaves)) {
		if !hasLeaf(in.site, code) {
			return finding.Bad(v1alpha1.ReasonLeafNotFound, fmt.Sprintf(
				"Site %q has no leaf %q in spec.leaves: add it there, or take it out of spec.leaves of the Feed; the rest of the Feed is as declared",
				in.site.Name, code)), true
		}
	}
	return finding.Finding{}, false
}
