// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"

	"github.com/nats-io/nats.go"
)

// Ack says where a message lies.
type Ack struct {
	// Sequence in the stream; for a duplicate, that of the message which was there before.
	Sequence uint64
	// Duplicate: the stream held the message's id already.
	Duplicate bool
}

// Committer publishes to one stream.
type Committer struct{}

// CommitterConfig bounds a Committer.
type CommitterConfig struct {
	// Stream that must acknowledge.
	Stream string
}

// NewCommitter begins to commit to the stream over nc. Close ends it; it leaves nc open.
func NewCommitter(nc *nats.Conn, cfg CommitterConfig) (*Committer, error) { return &Committer{}, nil }

// Publish returns once the message is safe in the stream.
func (c *Committer) Publish(ctx context.Context, msg *nats.Msg) error { return nil }

// Submit queues a message; done hears once what became of it.
func (c *Committer) Submit(ctx context.Context, msg *nats.Msg, done func(Ack, error)) error {
	return nil
}

// Close takes nothing more and returns once everything queued was committed, or ctx ended.
func (c *Committer) Close(ctx context.Context) error { return nil }
