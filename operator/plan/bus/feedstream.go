// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"cmp"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
)

// FeedStreams returns the streams that hold a Feed's notices and telemetry; empty if the Feed does not carry them.
func FeedStreams(site *v1alpha1.Site, feed *v1alpha1.Feed) (notices, telemetry string) {
	code := site.Spec.Code
	notices, telemetry = wire.NoticeStream(code), wire.ObservationStream(code)
	if feed.Spec.Stream != nil {
		notices = wire.FeedStream(code, feed.Name)
		telemetry = notices
	}
	n, t := accept.Carries(feed)
	if !n {
		notices = ""
	}
	if !t {
		telemetry = ""
	}
	return notices, telemetry
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
	// Deletion is how to treat it without its owner.
	Deletion v1alpha1.DeletionPolicy `json:"deletion"`
}

// feedStream is a Feed's own stream; nil if it has none.
func feedStream(site *v1alpha1.Site, feed *v1alpha1.Feed, v accept.FeedVerdict) *OwnStream {
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

// feedSources: each instrument (and channel) is a source of its own, which JetStream continues from its position when another one comes or
// goes; one source with another filter would start over, and bring everything a second time. A Feed of everything has one source for all of
// the Site's instruments. The stream does not depend on who may read what; deliveries from it do. A Feed that selects nothing has a source
// that brings nothing: without any, JetStream would use the stream's name as its subject.
func feedSources(site *v1alpha1.Site, feed *v1alpha1.Feed, v accept.FeedVerdict) []StreamSource {
	code := site.Spec.Code
	notices, telemetry := accept.Carries(feed)
	var all []StreamSource
	if notices {
		for _, subject := range noticeSubjects(code, v.Selects(), accept.Backfills(feed)) {
			all = append(all, StreamSource{wire.NoticeStream(code), subject})
		}
	}
	if telemetry {
		for _, subject := range observationSubjects(code, v.Selects(), feed.Spec.Channels) {
			all = append(all, StreamSource{wire.ObservationStream(code), subject})
		}
	}
	if len(all) == 0 {
		all = append(all, StreamSource{wire.ObservationStream(code), wire.NoObservations(code)})
	}
	return all
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

// FeedSelection is the part of one stream that a Feed selects.
type FeedSelection struct {
	Stream   string   `json:"stream"`
	Subjects []string `json:"subjects"`
	// Whole: the stream is the Feed's own.
	Whole bool `json:"whole,omitempty"`
}

// FeedSelections are the parts of its streams that a Feed selects.
func FeedSelections(site *v1alpha1.Site, feed *v1alpha1.Feed, v accept.FeedVerdict) []FeedSelection {
	code := site.Spec.Code
	notices, telemetry := FeedStreams(site, feed)
	subjects := map[string][]string{}
	if notices != "" {
		subjects[notices] = append(subjects[notices], noticeSubjects(code, v.Selects(), accept.Backfills(feed))...)
	}
	if telemetry != "" {
		subjects[telemetry] = append(subjects[telemetry], observationSubjects(code, v.Selects(), feed.Spec.Channels)...)
	}
	var all []FeedSelection
	for _, stream := range StreamsOf(site, feed) {
		all = append(all, FeedSelection{Stream: stream, Subjects: subjects[stream], Whole: feed.Spec.Stream != nil})
	}
	return all
}

// StreamsOf are the streams that a Feed's messages lie in, in order.
func StreamsOf(site *v1alpha1.Site, feed *v1alpha1.Feed) []string {
	notices, telemetry := FeedStreams(site, feed)
	switch {
	case notices == "" || notices == telemetry:
		return []string{telemetry}
	case telemetry == "":
		return []string{notices}
	default:
		return []string{notices, telemetry}
	}
}
