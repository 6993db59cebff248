// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// PublishAfter stores messages, of which there are 1 to MaxGroup, right after a sequence of a stream that takes atomic batches, and
// returns the sequence of the last one: all of them as one batch (ADR-50), or none. Errors: ErrConflict where another message has come after that
// sequence, ErrRefused, and ErrUnavailable, after which they may be stored or not.
func PublishAfter(ctx context.Context, nc *nats.Conn, stream string, after uint64, messages []*nats.Msg) (last uint64, err error) {
	id := nuid.Next()
	for i, m := range messages {
		m = &nats.Msg{Subject: m.Subject, Data: m.Data, Header: headersOf(m)}
		if i == 0 {
			m.Header.Set(nats.ExpectedLastSeqHdr, fmt.Sprint(after))
		}
		if len(messages) > 1 {
			m.Header.Set(headerBatchID, id)
			m.Header.Set(headerBatchSequence, fmt.Sprint(i+1))
		}
		if i < len(messages)-1 {
			if err := nc.PublishMsg(m); err != nil {
				return 0, fmt.Errorf("publish to %s: %w: %w", stream, ErrUnavailable, err)
			}
			continue
		}
		if len(messages) > 1 {
			m.Header.Set(headerBatchCommit, "1")
		}
		answer, err := nc.RequestMsgWithContext(ctx, m)
		if err != nil {
			return 0, fmt.Errorf("publish to %s: %w: %w", stream, ErrUnavailable, err)
		}
		ack, v, err := parseAck(answer, stream)
		switch {
		case v == taken && (len(messages) == 1 || ack.count == len(messages)):
			last = ack.sequence
		case v == taken:
			return 0, fmt.Errorf("publish to %s: %w: %d of %d messages of a batch were acknowledged", stream, ErrUnavailable, ack.count, len(messages))
		case v == again:
			return 0, fmt.Errorf("publish to %s: %w: %w", stream, ErrUnavailable, err)
		default:
			return 0, fmt.Errorf("publish to %s: %w: %w", stream, ErrRefused, err)
		}
	}
	return last, nil
}

func headersOf(m *nats.Msg) nats.Header {
	all := nats.Header{}
	for key, values := range m.Header {
		all[key] = values
	}
	return all
}
