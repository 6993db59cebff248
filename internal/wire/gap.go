// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"time"
)

// TypeGap is the ce-type of a gap record.
const TypeGap = "dev.substorm.gap.v1"

// GapReason says why a consumer was not given messages.
type GapReason string

// The reasons of gaps. They are part of the API: metrics and status spell them so.
const (
	// GapRetention: they left the stream before the consumer came to them.
	GapRetention GapReason = "Retention"
	// GapStreamRecreated: the stream was deleted and made again.
	GapStreamRecreated GapReason = "StreamRecreated"
	// GapConsumerDeleted: the durable consumer, with its place, was deleted.
	GapConsumerDeleted GapReason = "ConsumerDeleted"
	// GapMaxLag: the consumer was further behind than its flow.maxLag.
	GapMaxLag GapReason = "MaxLag"
	// GapOverflow: the queue of priority Urgent, or of modes Latest and Sample, was full.
	GapOverflow GapReason = "Overflow"
)

// Gap is the record that says what a consumer was not given.
type Gap struct {
	// Consumer is the FeedConsumer.
	Consumer string `json:"consumer"`
	// Stream whose messages are missing.
	Stream string `json:"stream"`
	// From and To are the first and the last place that are missing; From is empty if it is unknown.
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	// Count of messages that are missing: of all that were in the stream between the two places, if it is unknown which of them the
	// consumer's filter selects. 0 if none is known to be missing: a stream or a durable was recreated, and what follows may come a
	// second time.
	Count uint64 `json:"count"`
	// Exact says that Count holds only what the filter selects.
	Exact  bool      `json:"exact,omitempty"`
	Reason GapReason `json:"reason"`
	At     time.Time `json:"at"`
}

// GapSubject is where gap records of a consumer are published.
func GapSubject(site, consumer string) string { return "gap." + site + "." + consumer }

// GapSubjects matches all gap records of a Site.
func GapSubjects(site string) string { return "gap." + site + ".>" }

func (g *Gap) check() error {
	if g.Consumer == "" || g.Stream == "" || g.Reason == "" || g.At.IsZero() {
		return fmt.Errorf("gap record lacks consumer (%.100q), stream (%.100q), reason or at: %w", g.Consumer, g.Stream, ErrMalformed)
	}
	return nil
}
