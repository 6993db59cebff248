// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"slices"
	"strings"
)

// ObservationStream is the Site's base stream of telemetry messages.
func ObservationStream(site string) string { return "OBS_" + site }

// NoticeStream is the Site's base stream of notices.
func NoticeStream(site string) string { return "NOTICE_" + site }

// ObservationSubject is where telemetry messages of a channel are published.
func ObservationSubject(site, instrument, channel string) string {
	return "obs." + site + "." + instrument + "." + channel
}

// ObservationSubjectsOf matches all telemetry of an instrument.
func ObservationSubjectsOf(site, instrument string) string {
	return ObservationSubject(site, instrument, ">")
}

// ObservationSubjects matches all telemetry of a Site.
func ObservationSubjects(site string) string { return "obs." + site + ".>" }

// ParseObservationSubject returns the instrument and channel of a subject that
// ObservationSubject made.
func ParseObservationSubject(subject string) (site, instrument, channel string, err error) {
	p := strings.Split(subject, ".")
	if len(p) != 4 || p[0] != "obs" || slices.Contains(p, "") {
		return "", "", "", fmt.Errorf("subject %q is not obs.<site>.<instrument>.<channel>: %w", subject, ErrMalformed)
	}
	return p[1], p[2], p[3], nil
}

// NothingSelected is the name of no Instrument: a list that must have no instrument's name has it,
// where an empty one would stand for all.
const NothingSelected = "_"

// NoObservations matches nothing: no instrument is named so. A consumer that may read
// nothing of a stream filters by it; without a filter it would be given all.
func NoObservations(site string) string { return ObservationSubject(site, NothingSelected, "_") }

// NoticeSubject is where an instrument's notices are published, but for those of backfill.
func NoticeSubject(site, instrument string) string { return "notice." + site + "." + instrument }

// backfillToken ends the subject of notices of backfill.
const backfillToken = "backfill"

// BackfillSubject is where an instrument's notices of backfill are published: objects that came late. A consumer that selects an
// instrument's notices by NoticeSubject is not given them.
func BackfillSubject(site, instrument string) string {
	return NoticeSubject(site, instrument) + "." + backfillToken
}

// mirroredToken ends the subject of notices of what was pulled from another Site.
const mirroredToken = "mirrored"

// MirroredSubject is where the notices of a guest are published. Neither NoticeSubject nor BackfillSubject of all
// instruments matches it: Feeds are of the Site's own instruments.
func MirroredSubject(site, guest string) string {
	return NoticeSubject(site, guest) + "." + mirroredToken
}

// ParseNoticeSubject returns the instrument of a subject that NoticeSubject,
// BackfillSubject or MirroredSubject made. Pulled objects came late, too.
func ParseNoticeSubject(subject string) (site, instrument string, backfill bool, err error) {
	p := strings.Split(subject, ".")
	if backfill = len(p) == 4 && (p[3] == backfillToken || p[3] == mirroredToken && IsGuest(p[2])); backfill {
		p = p[:3]
	}
	if len(p) != 3 || p[0] != "notice" || slices.Contains(p, "") {
		return "", "", false, fmt.Errorf("subject %q is not notice.<site>.<instrument>, optionally with .%s or .%s: %w", subject, backfillToken, mirroredToken, ErrMalformed)
	}
	return p[1], p[2], backfill, nil
}

// NoticeSubjects matches all notices of a Site, those of backfill among them.
func NoticeSubjects(site string) string { return "notice." + site + ".>" }

// HealthSubject is where changes of conditions are published.
func HealthSubject(site, kind, name string) string { return "health." + site + "." + kind + "." + name }

// HealthSubjects matches every change of a condition in a Site, and of its level of space weather.
func HealthSubjects(site string) string { return "health." + site + ".>" }

// The key-value buckets of a Site.
func RegistryBucket(site string) string { return "REGISTRY_" + site }

// LedgerBucket holds the ledger, see LedgerKey.
func LedgerBucket(site string) string { return "LEDGER_" + site }

// LeaseBucket holds who may do what only one may do. Its entries expire after LeaseTTL.
func LeaseBucket(site string) string { return "LEASE_" + site }

// StatusBucket holds what gateways report, see GatewayStatusKey and InstrumentStatusKey.
func StatusBucket(site string) string { return "STATUS_" + site }

// CursorBucket holds how far the archivist has come, see SegmentCursorKey.
func CursorBucket(site string) string { return "CURSOR_" + site }

// FeedStream is a Feed's own stream, where it has one.
func FeedStream(site, feed string) string { return "FEED_" + site + "_" + feed }

// ConsumerStream is the small stream in memory that feed-server fills for a
// consumer of modes Latest and Sample with delivery NATS.
func ConsumerStream(site, consumer string) string { return "CONS_" + site + "_" + consumer }

const consumerDurable = "c_"

// ConsumerDurable is the name of a consumer's durable in JetStream. Credentials open
// one durable by its name: issue tells it from those that earlier credentials of the
// consumer opened. Empty: the first of a consumer had none.
func ConsumerDurable(consumer, issue string) string {
	if issue == "" {
		return consumerDurable + consumer
	}
	return consumerDurable + consumer + "_" + issue
}

// ParseConsumerDurable returns the FeedConsumer that a durable is of, and false for
// other durables.
func ParseConsumerDurable(durable string) (consumer string, ok bool) {
	rest, ok := named(durable, consumerDurable)
	consumer, _, _ = strings.Cut(rest, "_") // which no name of a FeedConsumer has
	return consumer, ok && consumer != ""
}

// ParseFeedStream returns the Feed whose own stream a stream of the Site is, and
// false for other streams.
func ParseFeedStream(site, stream string) (feed string, ok bool) {
	return named(stream, FeedStream(site, ""))
}

// ParseConsumerStream returns the FeedConsumer that a stream of the Site is filled
// for, and false for other streams.
func ParseConsumerStream(site, stream string) (consumer string, ok bool) {
	return named(stream, ConsumerStream(site, ""))
}

// LiveSubject is where feed-server publishes, in a consumer's ConsumerStream, what
// came on a subject of the base streams.
func LiveSubject(site, consumer, subject string) string {
	return "live." + site + "." + consumer + "." + subject
}

// LiveSubjects matches all that LiveSubject returns for a consumer.
func LiveSubjects(site, consumer string) string { return "live." + site + "." + consumer + ".>" }
