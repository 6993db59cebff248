// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/substorm/substorm/internal/testenv"
)

// TestPublishAfter: messages are stored in their order right after a sequence, or none of them is.
func TestPublishAfter(t *testing.T) {
	t.Parallel()
	nc := connect(t, testenv.NATS(t, testenv.NATSOptions{}))
	s := makeStream(t, nc, nil)
	batch := func(n int) (all []*nats.Msg) {
		for i := range n {
			all = append(all, &nats.Msg{Subject: testSubject, Data: fmt.Append(nil, i)})
		}
		return all
	}
	last := uint64(0)
	for _, n := range []int{1, 2, MaxGroup, 1} {
		after, err := PublishAfter(t.Context(), nc, testStream, last, batch(n))
		if err != nil || after != last+uint64(n) {
			t.Fatalf("%d messages after %d: %d, %v", n, last, after, err)
		}
		if m, err := s.GetMsg(t.Context(), after); err != nil || string(m.Data) != fmt.Sprint(n-1) {
			t.Errorf("the last of %d is %q, %v", n, m.Data, err)
		}
		last = after
	}
	for _, n := range []int{1, 3} {
		if _, err := PublishAfter(t.Context(), nc, testStream, last-1, batch(n)); !errors.Is(err, ErrConflict) {
			t.Errorf("%d messages after another than the last: %v", n, err)
		}
	}
	info, err := s.Info(t.Context())
	if err != nil || info.State.LastSeq != last {
		t.Errorf("the stream ends at %d, want %d: %v", info.State.LastSeq, last, err)
	}
}
