// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
)

const (
	// defaultWindow is how many messages may wait for their acknowledgement if flow.window is not set.
	defaultWindow = 1000
	// maxConsumerStream bounds the stream that is filled for a consumer.
	maxConsumerStream = 64 << 20
)

// Durable is a durable consumer in JetStream: a FeedConsumer's place in a stream. The
// FeedConsumer must acknowledge the messages that it is given.
type Durable struct {
	Stream      string   `json:"stream"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Subjects    []string `json:"subjects"`
	// Window is how many messages may wait for their acknowledgement.
	Window int `json:"window"`
	// UID of the FeedConsumer.
	UID string `json:"uid"`
}

// Plan is the planned content of JetStream for a Site's Feeds and FeedConsumers, beside the base streams.
type Plan struct {
	Streams  []OwnStream `json:"streams,omitempty"`
	Durables []Durable   `json:"durables,omitempty"`
	// Feeds and Consumers are all that exist: streams and durables that are neither planned for one of them nor belong to one are removed.
	Feeds []string `json:"feeds,omitempty"`
	// Leaving are Feeds that are being deleted, and whose own streams go: see LeavingFeeds.
	Leaving   []string `json:"leaving,omitempty"`
	Consumers []string `json:"consumers,omitempty"`
	// Mirrors are the MirrorPartners that exist: reports of runs of others go.
	Mirrors []string `json:"mirrors,omitempty"`
	// Pullers are the readers that the Site waits for: reports of other readers that pull are removed, else they would count at once if
	// these are declared again.
	Pullers []string `json:"pullers,omitempty"`
	// Selections by Feed are counted for its status.
	Selections map[string][]FeedSelection `json:"selections,omitempty"`
	// Settled consumers need what is planned, and nothing else; existing streams and durables of other consumers stay. MayRead has, for
	// some consumers, the instruments whose messages stay.
	Settled []string `json:"settled,omitempty"`
	// Withheld are consumers without credentials, whose Secret was taken away and the next is
	// not written yet, and those whose Feed is gone. Their existing durables stay, and deliver
	// nothing.
	Withheld []string            `json:"withheld,omitempty"`
	MayRead  map[string][]string `json:"mayRead,omitempty"`

	// durables are the places of Durables by stream and name.
	durables map[[2]string]int
}

// Succeeds returns the durable of a stream that is planned for a FeedConsumer, under any name, and false if there is none: it continues
// from the position of one with an earlier name, which must exist until then.
func (p *Plan) Succeeds(stream, consumer string) (Durable, bool) {
	for i := range p.Durables {
		d := &p.Durables[i]
		if of, _ := wire.ParseConsumerDurable(d.Name); d.Stream == stream && of == consumer {
			return *d, true
		}
	}
	return Durable{}, false
}

// AddDurable adds one to the plan.
func (p *Plan) AddDurable(d Durable) {
	if p.durables == nil {
		p.durables = map[[2]string]int{}
	}
	p.durables[[2]string{d.Stream, d.Name}] = len(p.Durables)
	p.Durables = append(p.Durables, d)
}

// Durable returns the durable of a stream that is planned under a name, and false where
// none is.
func (p *Plan) Durable(stream, name string) (Durable, bool) {
	i, planned := p.durables[[2]string{stream, name}]
	if !planned {
		return Durable{}, false
	}
	return p.Durables[i], true
}

// MakePlan plans streams and durables. Consumers are all of the namespace: those without a verdict are another Site's, or their Feed is
// gone. Durables are the names of theirs, see ConsumerDurables: the existing durables of a consumer without a name stay.
func MakePlan(site *v1alpha1.Site, feeds []v1alpha1.Feed, verdicts map[string]accept.FeedVerdict,
	consumers []v1alpha1.FeedConsumer, consumerVerdicts map[string]accept.ConsumerVerdict, durables map[string]string,
) Plan {
	p := Plan{Selections: map[string][]FeedSelection{}}
	for i := range site.Spec.PulledBy { // a reader may have confirmed before it has access
		p.Pullers = append(p.Pullers, site.Spec.PulledBy[i].Reader)
	}
	for i := range feeds {
		p.Feeds = append(p.Feeds, feeds[i].Name)
		if v := verdicts[feeds[i].Name]; v.Served {
			p.Selections[feeds[i].Name] = FeedSelections(site, &feeds[i], v)
		}
		if s := feedStream(site, &feeds[i], verdicts[feeds[i].Name]); s != nil {
			p.Streams = append(p.Streams, *s)
		}
	}
	for i := range consumers {
		c := &consumers[i]
		p.Consumers = append(p.Consumers, c.Name)
		name, issued := durables[c.Name]
		if c.Spec.Delivery.Type == v1alpha1.DeliveryNATS && !issued && accept.FeedNamed(feeds, c.Spec.FeedRef.Name) != nil {
			p.Withheld = append(p.Withheld, c.Name)
		}
		v, known := consumerVerdicts[c.Name]
		if known && !v.OK() && !v.Absent && fills(c) && !accept.Notified(c) {
			p.Settled = append(p.Settled, c.Name) // a stream of the newest messages loses nothing
		}
		if !known || !v.OK() {
			continue
		}
		if s := consumerStream(site, c); s != nil {
			p.Streams = append(p.Streams, *s)
		}
		if c.Spec.Delivery.Type == v1alpha1.DeliveryNATS && !issued {
			continue
		}
		p.Settled = append(p.Settled, c.Name)
		for _, d := range Durables(site, accept.FeedNamed(feeds, c.Spec.FeedRef.Name), c, v, name) {
			p.AddDurable(d)
		}
	}
	return p
}

// Orphans are the FeedConsumers whose Feed does not exist, or is being deleted. Feeds are all of
// the namespace.
func Orphans(feeds []v1alpha1.Feed, consumers []v1alpha1.FeedConsumer) []string {
	stands := map[string]bool{}
	for i := range feeds {
		stands[feeds[i].Name] = feeds[i].DeletionTimestamp == nil
	}
	var names []string
	for i := range consumers {
		if c := &consumers[i]; c.Spec.Delivery.Type == v1alpha1.DeliveryNATS && !stands[c.Spec.FeedRef.Name] {
			names = append(names, c.Name)
		}
	}
	return names
}

// MayRead are the instruments that a FeedConsumer may read, as wire.AllInstruments if those are all of the Site's own: for each that is not
// settled, and for each that has a stream that is filled. Instruments that are closed are closed at once, no matter what else is wrong with
// the consumer.
func MayRead(p Plan, feeds []v1alpha1.Feed, consumers []v1alpha1.FeedConsumer, instruments []v1alpha1.Instrument, may *accept.SiteAccess, now time.Time) map[string][]string {
	all := map[string][]string{}
	names := make([]string, len(instruments))
	for i := range instruments {
		names[i] = instruments[i].Name
	}
	slices.Sort(names)
	for i := range consumers {
		c := &consumers[i]
		if c.Spec.Delivery.Type != v1alpha1.DeliveryNATS || slices.Contains(p.Settled, c.Name) && !fills(c) {
			continue
		}
		feed, known := accept.FeedNamed(feeds, c.Spec.FeedRef.Name), names
		if may.Everything(feed, c, now) {
			known = []string{wire.AllInstruments}
		}
		if feed != nil {
			for _, leaf := range slices.Sorted(slices.Values(feed.Spec.Leaves)) {
				known = append(slices.Clip(known), wire.LeafInstruments(leaf))
			}
		}
		all[c.Name] = may.Readable(feed, c, known, now)
	}
	return all
}

// Narrow returns the part of a durable's subjects that its consumer may read if it may read the instruments in a list: their subjects, one
// for each of them in place of a wildcard, and its gap records.
func Narrow(site string, subjects, instruments []string) []string {
	var all []string
	for _, subject := range subjects {
		switch form, wild := ofAllInstruments(site, subject); {
		case listed(site, subject, instruments):
			all = append(all, subject)
		case wild:
			for _, name := range instruments {
				if !accept.IsLeaf(name) {
					all = append(all, form(name))
				}
			}
		}
	}
	if len(all) == 0 {
		return []string{wire.NoObservations(site)}
	}
	return all
}

// OfSite says whether a subject is of instruments of a Site itself, and not of a leaf's.
func OfSite(site, subject string) bool {
	tokens := strings.Split(subject, ".")
	return len(tokens) > 2 && tokens[1] == site
}

// OfAllInstruments says whether a subject is one of all instruments of a Site.
func OfAllInstruments(site, subject string) bool {
	_, wild := ofAllInstruments(site, subject)
	return wild
}

// ofAllInstruments returns a function that turns a subject of all instruments of a Site into the subject of one, and false for other
// subjects.
func ofAllInstruments(site, subject string) (of func(instrument string) string, wild bool) {
	tokens := strings.Split(subject, ".")
	if len(tokens) < 3 || tokens[0] != "obs" && tokens[0] != "notice" || tokens[1] != site || tokens[2] != wire.AllInstruments {
		return nil, false
	}
	return func(instrument string) string {
		one := slices.Clone(tokens)
		one[2] = instrument
		return strings.Join(one, ".")
	}, true
}

// Wider says whether some of the subjects that a durable has are not among those that it is
// to have, nor covered by one of all instruments.
func Wider(site string, has, wanted []string) bool {
	want := make(map[string]bool, len(wanted))
	for _, subject := range wanted {
		want[subject] = true
	}
	return slices.ContainsFunc(has, func(subject string) bool {
		if want[subject] {
			return false
		}
		tokens := strings.Split(subject, ".")
		if len(tokens) < 3 || tokens[1] != site {
			return true
		}
		tokens[2] = wire.AllInstruments
		return !want[strings.Join(tokens, ".")]
	})
}

// Closed returns those subjects of a consumer's own stream that are of instruments
// that are not in a list.
func Closed(site, consumer string, subjects, instruments []string) []string {
	var all []string
	for _, subject := range subjects {
		is, live := strings.CutPrefix(subject, wire.LiveSubject(site, consumer, ""))
		if live && !listed(site, is, instruments) {
			all = append(all, subject)
		}
	}
	slices.Sort(all)
	return all
}

// listed returns whether a list has the instrument of a subject, or its leaf. Gap records, and what matches nothing, belong to no
// instrument, and are open to all.
func listed(site, subject string, instruments []string) bool {
	of, instrument, _, err := wire.ParseNoticeSubject(subject)
	if err != nil {
		of, instrument, _, err = wire.ParseObservationSubject(subject)
	}
	if err == nil && of != site {
		instrument = wire.LeafInstruments(of)
	}
	if err != nil || slices.Contains(instruments, instrument) {
		return true
	}
	return of == site && slices.Contains(instruments, wire.AllInstruments)
}

// fills says whether a feed server fills a stream for the consumer.
func fills(c *v1alpha1.FeedConsumer) bool {
	return c.Spec.Delivery.Type == v1alpha1.DeliveryNATS && (c.Spec.Flow.Mode != v1alpha1.FlowAll || accept.Notified(c))
}

// notificationsKept is how long WIS2 notifications wait for their consumer.
const notificationsKept = 24 * time.Hour

// samplesKept is how many samples of each subject the stream of a consumer of mode Sample keeps: one telemetry message may bring several at
// once.
const samplesKept = 16

// consumerStream is the stream that a feed server fills for a consumer of modes
// Latest and Sample: in memory, since its messages lie in the Feed's streams too, as
// often as the Site's other streams, so that one server can be away, and of each
// subject only the newest, or the newest samples. Nil for other consumers.
func consumerStream(site *v1alpha1.Site, c *v1alpha1.FeedConsumer) *OwnStream {
	if !fills(c) {
		return nil
	}
	perSubject := int64(1)
	if c.Spec.Flow.Mode == v1alpha1.FlowSample {
		perSubject = samplesKept
	}
	if accept.Notified(c) {
		return &OwnStream{
			Name:        wire.ConsumerStream(site.Spec.Code, c.Name),
			Description: fmt.Sprintf("WIS2 notifications for FeedConsumer %s of Site %s", c.Name, site.Spec.Code),
			Subjects:    []string{wire.LiveSubjects(site.Spec.Code, c.Name)},
			MaxBytes:    maxConsumerStream,
			MaxAge:      notificationsKept,
			Replicas:    int(site.Spec.JetStream.Replicas),
			Storage:     v1alpha1.StorageFile,
			Duplicates:  duplicateWindow,
			Deletion:    v1alpha1.DeletionDelete,
		}
	}
	return &OwnStream{
		Name:        wire.ConsumerStream(site.Spec.Code, c.Name),
		Description: fmt.Sprintf("%s for FeedConsumer %s of Site %s", c.Spec.Flow.Mode, c.Name, site.Spec.Code),
		Subjects:    []string{wire.LiveSubjects(site.Spec.Code, c.Name)},
		MaxBytes:    maxConsumerStream,
		PerSubject:  perSubject,
		Replicas:    int(site.Spec.JetStream.Replicas),
		Storage:     v1alpha1.StorageMemory,
		Duplicates:  duplicateWindow,
		Deletion:    v1alpha1.DeletionDelete,
	}
}

// Durables are the durables of one FeedConsumer that is accepted; none for deliveries other than NATS. In mode All they are on the streams
// that hold its messages, and one is on the notices' stream for its gap records and the Site's level of space weather; otherwise on the
// stream that is filled for it. All have one name.
func Durables(site *v1alpha1.Site, feed *v1alpha1.Feed, c *v1alpha1.FeedConsumer, v accept.ConsumerVerdict, name string) []Durable {
	if c.Spec.Delivery.Type != v1alpha1.DeliveryNATS {
		return nil
	}
	code := site.Spec.Code
	if fills(c) {
		return []Durable{durableOf(c, name, wire.ConsumerStream(code, c.Name), []string{wire.LiveSubjects(code, c.Name)})}
	}
	subjects := map[string][]string{wire.NoticeStream(code): {wire.GapSubject(code, c.Name), wire.SurgeSubject(code)}}
	notices, telemetry := FeedStreams(site, feed)
	if v.Notices {
		subjects[notices] = append(subjects[notices], noticeSubjects(code, v.Reads(), accept.Backfills(feed))...)
	}
	if v.Telemetry {
		subjects[telemetry] = append(subjects[telemetry], observationSubjects(code, v.Reads(), v.Channels)...)
	}
	var all []Durable
	for _, stream := range consumerStreams(site, feed, c, v) {
		if len(subjects[stream]) == 0 { // without a filter it would be given all
			subjects[stream] = []string{wire.NoObservations(code)}
		}
		all = append(all, durableOf(c, name, stream, subjects[stream]))
	}
	return all
}

// consumerStreams are the streams that a consumer of delivery NATS reads; the stream of the notices comes first.
func consumerStreams(site *v1alpha1.Site, feed *v1alpha1.Feed, c *v1alpha1.FeedConsumer, v accept.ConsumerVerdict) []string {
	code := site.Spec.Code
	if fills(c) {
		return []string{wire.ConsumerStream(code, c.Name)}
	}
	all := []string{wire.NoticeStream(code)}
	notices, telemetry := FeedStreams(site, feed)
	if v.Notices && !slices.Contains(all, notices) {
		all = append(all, notices)
	}
	if v.Telemetry && !slices.Contains(all, telemetry) {
		all = append(all, telemetry)
	}
	return all
}

func durableOf(c *v1alpha1.FeedConsumer, name, stream string, subjects []string) Durable {
	d := Durable{
		Stream: stream, Name: name, Description: "FeedConsumer " + c.Name,
		Subjects: subjects, Window: defaultWindow, UID: string(c.UID),
	}
	if c.Spec.Flow.Window != nil {
		d.Window = int(*c.Spec.Flow.Window)
	}
	return d
}
