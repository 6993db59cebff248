// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/substorm/substorm/internal/wire"
)

// positionEvery is the least time between two writes of the position of a FeedConsumer: a durable that was deleted from outside delivers
// the messages behind the last known position again.
const positionEvery = time.Minute

// KeptPosition is a place as it was last written, at a time; zero where another operator
// wrote it.
type KeptPosition struct {
	wire.PositionCursor `json:",inline"`
	WrittenTime         time.Time `json:"writtenTime,omitzero"`
}

// PositionChange is a change of the stored positions.
type PositionChange struct {
	Put    map[string]wire.PositionCursor `json:"put,omitempty"`
	Remove []string                       `json:"remove,omitempty"`
}

// Positions plans which positions are written, by FeedConsumer: those that moved, each at most once in positionEvery, and at once if none
// is stored for this FeedConsumer. If a durable does not exist, its stored position stays. Those of FeedConsumers that are gone are
// removed.
func Positions(p Plan, found map[string]wire.PositionCursor, kept map[string]KeptPosition, now time.Time) PositionChange {
	change := PositionChange{Put: map[string]wire.PositionCursor{}}
	for consumer, is := range found {
		was, known := kept[consumer]
		ours := known && was.UID == is.UID
		next := wire.PositionCursor{UID: is.UID, Streams: map[string]string{}}
		for _, d := range p.Durables {
			of, ok := wire.ParseConsumerDurable(d.Name)
			if !ok || of != consumer {
				continue
			}
			if token := is.Streams[d.Stream]; token != "" {
				next.Streams[d.Stream] = token
			} else if token := was.Streams[d.Stream]; ours && token != "" {
				next.Streams[d.Stream] = token
			}
		}
		early := ours && now.Sub(was.WrittenTime) < positionEvery
		if len(next.Streams) > 0 && !early && !equality.Semantic.DeepEqual(next, was.PositionCursor) {
			change.Put[consumer] = next
		}
	}
	for consumer := range kept {
		if !slices.Contains(p.Consumers, consumer) {
			change.Remove = append(change.Remove, consumer)
		}
	}
	slices.Sort(change.Remove)
	return change
}

// GoesOnAfter returns the sequence behind which a durable that must be created continues: the furthest of all known positions of its
// FeedConsumer in this very stream. 0: it begins with the oldest message.
func GoesOnAfter(d Durable, epoch string, known ...wire.PositionCursor) uint64 {
	after := uint64(0)
	for _, at := range known {
		if token, err := wire.ParseResumeToken(at.Streams[d.Stream]); err == nil && at.UID == d.UID && token.Epoch == epoch {
			after = max(after, token.Sequence)
		}
	}
	return after
}
