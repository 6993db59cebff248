// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"fmt"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

const (
	// leastMessage is the least size of a message in a stream: subject, the CloudEvents headers and the stream's own.
	leastMessage = 256
)

// ConsumerVerdict says whether a FeedConsumer is accepted, and what it selects.
type ConsumerVerdict struct {
	finding.Finding
	// Instruments that its filter selects of the Feed, and of these those that it may
	// read by its own name, in order.
	Instruments []string `json:"instruments,omitempty"`
	Readable    []string `json:"readable,omitempty"`
	// Everything: of the Site's own instruments it may have all, those to come too, and its
	// filter names none.
	Everything bool `json:"everything,omitempty"`
	// Whole: it may have all that its Feed selects.
	Whole bool `json:"whole,omitempty"`
	// Channels of telemetry; empty: all.
	Channels  []string `json:"channels,omitempty"`
	Notices   bool     `json:"notices,omitempty"`
	Telemetry bool     `json:"telemetry,omitempty"`
	// Selected says whether the filter matches anything of the Feed.
	Selected finding.Finding `json:"selected,omitzero"`
	// Served and Absent are as in FeedVerdict.
	Served bool `json:"served,omitempty"`
	Absent bool `json:"absent,omitempty"`
}

// consumerApplication is one FeedConsumer that wants to be accepted.
type consumerApplication struct {
	site     *v1alpha1.Site
	feed     *v1alpha1.Feed
	verdict  FeedVerdict
	consumer *v1alpha1.FeedConsumer
	// addressed is as AddressedServer says.
	addressed *v1alpha1.FeedServer
	is        ConsumerVerdict
}

var consumerChecks = []finding.Check[consumerApplication]{
	consumerIsUnreadable,
	feedIsMissing,
	feedIsNotReady,
	consumerHasNoPort,
	consumerHasNoAccountKey,
	consumerMayReadNothing,
	consumerHasNoAddress,
	windowIsTooLarge,
}

// Consumers judges the FeedConsumers of one Site's Feeds, by name; others
// have no verdict.
func Consumers(site *v1alpha1.Site, feeds []v1alpha1.Feed, verdicts map[string]FeedVerdict,
	consumers []v1alpha1.FeedConsumer, servers []v1alpha1.FeedServer, may *SiteAccess, now time.Time,
) map[string]ConsumerVerdict {
	addressed := AddressedServer(servers)
	verdictsOf := map[string]ConsumerVerdict{}
	for i := range consumers {
		feed := FeedNamed(feeds, consumers[i].Spec.FeedRef.Name)
		if feed == nil {
			continue
		}
		in := consumerApplication{site: site, feed: feed, verdict: verdicts[feed.Name], consumer: &consumers[i], addressed: addressed}
		in.is = selection(feed, in.verdict, in.consumer)
		in.is.Readable = may.Readable(feed, in.consumer, in.is.Instruments, now)
		all := len(in.consumer.Spec.Filter.InstrumentNames) == 0
		in.is.Whole = all && len(in.is.Readable) > 0 && len(in.is.Readable) == len(in.verdict.Instruments)
		in.is.Everything = all && in.verdict.Everything && in.is.Whole && may.Everything(feed, in.consumer, now)
		verdictsOf[consumers[i].Name] = in.judge()
	}
	return verdictsOf
}

// OrphanConsumer is the verdict on a FeedConsumer whose Feed does not exist.
func OrphanConsumer(consumer *v1alpha1.FeedConsumer) ConsumerVerdict {
	return consumerApplication{consumer: consumer}.judge()
}

func (in consumerApplication) judge() ConsumerVerdict {
	v := in.is
	v.Finding = finding.First(in, consumerChecks, finding.Good(v1alpha1.ReasonAccepted, in.accepted()))
	v.Served = v.OK()
	if v.OK() {
		v.Selected = in.selects()
	}
	v.Absent = v.Reason == v1alpha1.ReasonFeedNotReady || v.Reason == v1alpha1.ReasonUnreadable
	return v
}

func (in consumerApplication) accepted() string {
	text := "its filter selects " + instrumentCount(len(in.is.Instruments))
	if hidden := len(in.is.Instruments) - len(in.is.Readable); hidden > 0 {
		text += fmt.Sprintf(", of which it may read %d: those that restrict access, or have an embargo, must name it in spec.access.readers", len(in.is.Readable))
	}
	return text
}

// FeedNamed returns the Feed with a name; nil if there is none.
func FeedNamed(feeds []v1alpha1.Feed, name string) *v1alpha1.Feed {
	for i := range feeds {
		if feeds[i].Name == name {
			return &feeds[i]
		}
	}
	return nil
}

// Reads are the instruments whose data it may have, as wire.AllInstruments where it may
// have all of the Site's own.
func (v ConsumerVerdict) Reads() []string {
	if !v.Everything {
		return v.Readable
	}
	return unnamed(v.Readable)
}

// unnamed is a list of all of a Site's own instruments, and leaves, without the names.
func unnamed(instruments []string) []string {
	all := []string{wire.AllInstruments}
	for _, name := range instruments {
		if IsLeaf(name) {
			all = append(all, name)
		}
	}
	return all
}

// selection is the part of its Feed that a consumer's filter selects.
func selection(feed *v1alpha1.Feed, v FeedVerdict, consumer *v1alpha1.FeedConsumer) ConsumerVerdict {
	filter := &consumer.Spec.Filter
	notices, telemetry := Carries(feed)
	if len(filter.MessageTypes) > 0 {
		notices = notices && slices.Contains(filter.MessageTypes, v1alpha1.MessageNotices)
		telemetry = telemetry && slices.Contains(filter.MessageTypes, v1alpha1.MessageTelemetry)
	}
	channels, any := intersectNames(feed.Spec.Channels, filter.Channels)
	is := ConsumerVerdict{Notices: notices, Telemetry: telemetry && any, Channels: channels}
	is.Instruments, _ = intersectNames(v.Instruments, filter.InstrumentNames)
	if len(v.Instruments) == 0 || !is.Notices && !is.Telemetry {
		is.Instruments = nil
	}
	return is
}

// intersectNames returns the intersection of two lists, in which an empty list selects all, and false if the intersection is empty.
func intersectNames(a, b []string) (all []string, any bool) {
	switch {
	case len(a) == 0:
		all = inOrder(b)
	case len(b) == 0:
		all = inOrder(a)
	default:
		for _, name := range inOrder(a) {
			if slices.Contains(b, name) {
				all = append(all, name)
			}
		}
		return all, len(all) > 0
	}
	return all, true
}

// inOrder returns names in order: a list that is, as it is.
func inOrder(names []string) []string {
	if slices.IsSorted(names) {
		return slices.Clip(names)
	}
	return slices.Sorted(slices.Values(names))
}

// IsLeaf returns whether a name means the instruments of a leaf.
func IsLeaf(name string) bool {
	_, is := wire.ParseLeafInstruments(name)
	return is
}

func feedIsMissing(in consumerApplication) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonFeedNotFound, fmt.Sprintf(
		"Feed %q does not exist in this namespace: create it, or make a FeedConsumer that names another one", in.consumer.Spec.FeedRef.Name)), in.feed == nil
}

func feedIsNotReady(in consumerApplication) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonFeedNotReady, fmt.Sprintf("Feed %q is not accepted: %s", in.feed.Name, in.verdict.Message)), !in.verdict.Served
}

// consumerHasNoPort: the NATS server of substorm up takes connections of its own process alone.
func consumerHasNoPort(in consumerApplication) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonStandalone, NoNATSPort), in.site != nil && NATSWithoutPort(in.site, in.consumer)
}

// NoNATSPort is the message of NATSWithoutPort.
const NoNATSPort = "spec.delivery: substorm up opens no port of its NATS server, so a consumer with delivery NATS cannot connect: choose WebSocket or ServerSentEvents, or run the Site on a cluster"

// NATSWithoutPort says whether a consumer connects to a NATS server that opens no port.
func NATSWithoutPort(site *v1alpha1.Site, consumer *v1alpha1.FeedConsumer) bool {
	return finding.IsStandalone(site) && consumer.Spec.Delivery.Type == v1alpha1.DeliveryNATS
}

func consumerHasNoAccountKey(in consumerApplication) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonNoAccountKey, fmt.Sprintf(
			"delivery NATS needs a user of the account of consumers, which the operator makes with that account's key: "+
				"set spec.jetStream.consumerAccountKeySecretRef of Site %q (docs/how-to/nats-accounts.md says how to make the account), or choose another delivery",
			in.site.Name)),
		in.consumer.Spec.Delivery.Type == v1alpha1.DeliveryNATS && in.site.Spec.JetStream.ConsumerAccountKeySecretRef == nil
}

// consumerHasNoAddress: notifications cannot name objects that have no address.
func consumerHasNoAddress(in consumerApplication) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonNoAddress, fmt.Sprintf(
			"WIS2 notifications name objects by address: set spec.url of a FeedServer of Site %q, or leave delivery.notices out", in.site.Name)),
		Notified(in.consumer) && in.addressed == nil
}

// selects returns whether the filter matches anything. A consumer that selects nothing is served all the same: an instrument that begins to
// match later belongs to it at once.
func (in consumerApplication) selects() finding.Finding {
	switch {
	case len(in.verdict.Instruments) == 0:
		return finding.Bad(v1alpha1.ReasonSelectsNothing, fmt.Sprintf("Feed %q selects nothing: %s", in.feed.Name, in.verdict.Selected.Message))
	case len(in.is.Instruments) == 0:
		return finding.Bad(v1alpha1.ReasonSelectsNothing, fmt.Sprintf(
			"none of its instruments, kinds of messages and channels is in Feed %q, which selects %s: change spec.filter; what comes to match later is given to it at once",
			in.feed.Name, instrumentCount(len(in.verdict.Instruments))))
	default:
		return finding.Good(v1alpha1.ReasonSelected, "its filter selects "+instrumentCount(len(in.is.Instruments)))
	}
}

// consumerMayReadNothing: over WebSocket and SSE a named reader may show a token of
// its own, so it is judged at each connection.
func consumerMayReadNothing(in consumerApplication) (finding.Finding, bool) {
	return finding.Bad(v1alpha1.ReasonForbidden, fmt.Sprintf(
			"it may read none of %s: restricted access and embargoes are for those that are named. Add %q to spec.access.readers of the Instruments",
			finding.List(in.is.Instruments), access.Consumer(in.consumer.Name, nil))),
		in.consumer.Spec.Delivery.Type == v1alpha1.DeliveryNATS && len(in.is.Instruments) > 0 && len(in.is.Readable) == 0
}

// windowIsTooLarge: more than a stream can hold never waits for an acknowledgement.
func windowIsTooLarge(in consumerApplication) (finding.Finding, bool) {
	window := in.consumer.Spec.Flow.Window
	if window == nil {
		return finding.Finding{}, false
	}
	for _, s := range in.streamSizes() {
		if holds := s.bytes / leastMessage; int64(*window) > holds {
			return finding.Bad(v1alpha1.ReasonInvalidFlow, fmt.Sprintf(
				"spec.flow.window is %d, and stream %s of %d bytes holds at most %d messages: set a smaller window, or make the stream larger",
				*window, s.name, s.bytes, holds)), true
		}
	}
	return finding.Finding{}, false
}

type streamSize struct {
	name  string
	bytes int64
}

func (in consumerApplication) streamSizes() []streamSize {
	js := &in.site.Spec.JetStream
	if in.feed.Spec.Stream != nil {
		return []streamSize{{wire.FeedStream(in.site.Spec.Code, in.feed.Name), in.feed.Spec.Stream.MaxSize.Value()}}
	}
	var all []streamSize
	if in.is.Notices {
		all = append(all, streamSize{wire.NoticeStream(in.site.Spec.Code), js.Notices.MaxSize.Value()})
	}
	if in.is.Telemetry {
		all = append(all, streamSize{wire.ObservationStream(in.site.Spec.Code), js.Observations.MaxSize.Value()})
	}
	return all
}

// Notified says whether the consumer is given WIS2 notifications.
func Notified(c *v1alpha1.FeedConsumer) bool {
	return c.Spec.Delivery.Notices == v1alpha1.NoticeWIS2
}
