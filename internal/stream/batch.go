// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// PublishAfter stores 1 to MaxGroup messages right after a sequence of a stream that accepts atomic batches, and returns the sequence of
// the last one: all of them as one batch (ADR-50), or none. It adds headers to them. Errors: ErrConflict if another message has been
// stored after that sequence, ErrRefused, and ErrUnavailable, after which they may be stored or not.
func PublishAfter(ctx context.Context, nc *nats.Conn, stream string, after uint64, messages []*nats.Msg) (last uint64, err error) {
	setHeaders(messages, after)
	end := len(messages) - 1
	for _, m := range messages[:end] {
		if err := nc.PublishMsg(m); err != nil {
			return 0, fmt.Errorf("publish to %s: %w: %w", stream, ErrUnavailable, err)
		}
	}
	answer, err := nc.RequestMsgWithContext(ctx, messages[end])
	if err != nil {
		return 0, fmt.Errorf("publish to %s: %w: %w", stream, ErrUnavailable, err)
	}
	ack, v, err := parseAck(answer, stream)
	switch {
	case v == taken && end > 0 && ack.count != len(messages):
		return 0, fmt.Errorf("publish to %s: %w: %d of %d messages of a batch were acknowledged", stream, ErrUnavailable, ack.count, len(messages))
	case v == taken:
		return ack.sequence, nil
	case v == again:
		return 0, fmt.Errorf("publish to %s: %w: %w", stream, ErrUnavailable, err)
	}
	return 0, fmt.Errorf("publish to %s: %w: %w", stream, ErrRefused, err)
}

// setHeaders makes messages a batch; one is none.
func setHeaders(messages []*nats.Msg, after uint64) {
	id := nuid.Next()
	for i, m := range messages {
		if m.Header == nil {
			m.Header = nats.Header{}
		}
		if len(messages) > 1 {
			m.Header.Set(headerBatchID, id)
			m.Header.Set(headerBatchSequence, strconv.Itoa(i+1))
		}
	}
	messages[0].Header.Set(nats.ExpectedLastSeqHdr, strconv.FormatUint(after, 10))
	if len(messages) > 1 {
		messages[len(messages)-1].Header.Set(headerBatchCommit, "1")
	}
}
