// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"
)

// ConsumerAPI begins the subjects on which a consumer of delivery NATS asks JetStream,
// in the account that consumers have: what $JS.API is elsewhere.
const ConsumerAPI = "substorm.API"

// CommandAPI begins the subjects on which commands ask JetStream, in the account COMMANDS.
const CommandAPI = ConsumerAPI

// deliveryShards is among how many leases the consumers of delivery NATS are shared
// out. One lease each would cost as many synced writes as there are consumers, every
// third of LeaseTTL.
const deliveryShards = 8

// DeliveryLeases are the keys of all leases that DeliveryLease returns.
func DeliveryLeases() []string {
	leases := make([]string, deliveryShards)
	for i := range leases {
		leases[i] = "delivery." + strconv.Itoa(i)
	}
	return leases
}

// DeliveryLease is the key of the lease whose holder alone, among the feed servers,
// works for a consumer of delivery NATS.
func DeliveryLease(consumer string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(consumer))
	return "delivery." + strconv.Itoa(int(h.Sum32()%deliveryShards))
}

const deliveryCursor = "delivery."

// DeliveryCursorKey is the key of a consumer's DeliveryCursor.
func DeliveryCursorKey(consumer string) string { return deliveryCursor + consumer }

// DeliveryCursorKeys matches all that DeliveryCursorKey returns.
const DeliveryCursorKeys = deliveryCursor + "*"

// ParseDeliveryCursorKey returns the consumer that a key names, and false for
// other keys.
func ParseDeliveryCursorKey(key string) (string, bool) {
	consumer, ok := strings.CutPrefix(key, deliveryCursor)
	return consumer, ok && consumer != "" && !strings.Contains(consumer, ".")
}

// DeliveryCursor says how far a consumer of delivery NATS and mode All is known to
// have come, and which gap records it was sent: so that there is one record for each
// gap, whichever feed server watches.
type DeliveryCursor struct {
	// UID of the FeedConsumer that this is about.
	UID string `json:"uid"`
	// Places by stream.
	Places map[string]DeliveryPlace `json:"places,omitempty"`
	// Marks are the sequences of the first messages that waited when that was looked
	// at last, by stream and by the Site that they are of, where a stream may lose those
	// of one before another's that came earlier.
	Marks map[string]map[string]uint64 `json:"marks,omitempty"`
	// Gaps is how many gap records there were, and LastGap when the last gap was found.
	Gaps    uint64     `json:"gaps,omitempty"`
	LastGap *time.Time `json:"lastGap,omitempty"`
	// Missing messages, by reason.
	Missing map[GapReason]uint64 `json:"missing,omitempty"`
	// Told is the last published record, until it is acknowledged. Sequence is where it lies in the stream of notices; 0 if it may not be
	// published yet.
	Told     *Gap   `json:"told,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"`
	// Untold are gaps that are published once the consumer has acknowledged the last one.
	Untold []Gap `json:"untold,omitempty"`
}

// DeliveryPlace is a durable's place in its stream.
type DeliveryPlace struct {
	// Epoch of the stream, and when the durable was made.
	Epoch   string    `json:"epoch"`
	Created time.Time `json:"created"`
	// Next is the first sequence that is neither known to be acknowledged nor in a
	// gap record. It may be a little behind.
	Next uint64 `json:"next"`
	// Waits says that Next is the sequence of a message that waited, when that was
	// looked at last.
	Waits bool `json:"waits,omitempty"`
	// Last is the stream's last sequence, and Waiting how many messages waited for
	// delivery or acknowledgement, when that was looked at last.
	Last    uint64 `json:"last"`
	Waiting uint64 `json:"waiting,omitempty"`
}

const positionCursor = "position."

// PositionCursorKey is the key of a consumer's PositionCursor.
func PositionCursorKey(consumer string) string { return positionCursor + consumer }

// PositionCursorKeys matches all that PositionCursorKey returns.
const PositionCursorKeys = positionCursor + "*"

// ParsePositionCursorKey returns the consumer that a key names, and false for other keys.
func ParsePositionCursorKey(key string) (string, bool) {
	consumer, ok := strings.CutPrefix(key, positionCursor)
	return consumer, ok && consumer != "" && !strings.Contains(consumer, ".")
}

// PositionCursor says up to where a consumer of delivery NATS has acknowledged everything, as the operator has seen it: a durable that
// was deleted is recreated there. It may be a little behind.
type PositionCursor struct {
	// UID of the FeedConsumer: another FeedConsumer of the same name starts again.
	UID string `json:"uid"`
	// Streams has a ResumeToken in writing for each stream: the token of the last message up to which everything was acknowledged.
	Streams map[string]string `json:"streams,omitempty"`
}

// FilledCursorKey is the key of the FilledCursor of the consumers of a DeliveryLease.
func FilledCursorKey(lease string) string {
	return filledCursor + strings.TrimPrefix(lease, "delivery.")
}

// FilledCursorKeys matches all that FilledCursorKey returns.
const (
	FilledCursorKeys = filledCursor + "*"
	filledCursor     = "filled."
)

// FilledCursor says how far the streams of consumers of delivery NATS and modes Latest and Sample are filled, also if nothing came for
// them, and how far those of mode All have acknowledged since their DeliveryCursor was written: of all consumers that a lease is about,
// so that one write is enough however many they are.
type FilledCursor struct {
	// Places by consumer.
	Places map[string]FilledPlace `json:"places,omitempty"`
}

// FilledPlace is how far a consumer's stream is filled, or how far it has acknowledged.
type FilledPlace struct {
	// UID of the FeedConsumer, and Epoch of its stream; for mode All of the Site's stream
	// of notices.
	UID   string `json:"uid"`
	Epoch string `json:"epoch"`
	// Token of the Feed behind which to continue: a FeedToken in writing. It may be a little behind.
	Token string `json:"token"`
	// Last is the last sequence that its stream had: a stream whose last sequence is lower was emptied, as a stream in memory is when all
	// of its servers restart.
	Last uint64 `json:"last,omitempty"`
}

// GapID is the ce-id and Nats-Msg-Id of a gap record that is sent to a durable consumer: uid is the uid of its FeedConsumer, number
// counts its records from 1.
func GapID(uid string, number uint64) string { return fmt.Sprintf("gap/%s/%d", uid, number) }
