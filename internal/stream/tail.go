// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// tailMessages and tailBytes may be on their way from the server at a time.
	tailMessages = 1024
	tailBytes    = 8 << 20
	// tailExpiry is how long a request stands, tailHeartbeat how often the server
	// says meanwhile that it still has it: twice that without a word is an error.
	tailExpiry    = 10 * time.Second
	tailHeartbeat = 2 * time.Second
	// idleTail is when the server forgets a tail that asks for nothing.
	idleTail = 30 * time.Second
)

// errAway: a consumer may be gone, and what it sent lost, when NATS comes back.
var errAway = errors.New("the connection to NATS was interrupted")

// Tail follows a stream from cfg.Start on and gives its messages as soon as they come: in order, without gaps, and messages that came
// together, together. It ends with an error: ErrEpoch, ctx's, give's, or what keeps JetStream from answering. The caller resumes behind
// the last message.
func Tail(ctx context.Context, js jetstream.JetStream, cfg ReaderConfig, give func([]Message) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	back := js.Conn().StatusChanged(nats.CONNECTED)
	defer js.Conn().RemoveStatusListener(back)
	_, consumer, err := openConsumer(ctx, js, cfg, max(1, cfg.Start), idleTail)
	if err != nil {
		return fmt.Errorf("follow stream %s: %w", cfg.Stream, err)
	}
	came := make(chan Message, tailMessages)
	var delivered uint64
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		meta, err := m.Metadata()
		if err == nil && meta.Sequence.Consumer != delivered+1 {
			err = errGap
		}
		if err != nil {
			cancel(err)
			return
		}
		delivered++
		select {
		case came <- Message{Sequence: meta.Sequence.Stream, At: meta.Timestamp, Subject: m.Subject(), Header: m.Headers(), Data: m.Data()}:
		case <-ctx.Done():
		}
	},
		jetstream.PullMaxMessagesWithBytesLimit(tailMessages, tailBytes), jetstream.PullExpiry(tailExpiry), jetstream.PullHeartbeat(tailHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { cancel(err) }),
	)
	if err != nil {
		return fmt.Errorf("follow stream %s: %w", cfg.Stream, err)
	}
	defer consuming.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("follow stream %s: %w", cfg.Stream, context.Cause(ctx))
		case <-back:
			return fmt.Errorf("follow stream %s: %w", cfg.Stream, errAway)
		case m := <-came:
			if err := give(gather(came, m)); err != nil {
				return err
			}
		}
	}
}

// gather returns what is there behind a first message.
func gather(came <-chan Message, first Message) []Message {
	together := append(make([]Message, 0, 1+len(came)), first)
	for len(together) < cap(together) {
		together = append(together, <-came)
	}
	return together
}
