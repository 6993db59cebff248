// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// witness reads the stream of observations while it grows, so that it knows each datagram
// that was ever in it, also one that is trimmed or lost later.
type witness struct {
	js jetstream.JetStream

	mu sync.Mutex
	// read is the last message that was read.
	read uint64
	// seen datagrams by instrument and number.
	seen map[string]map[uint64]bool
}

func (l *lab) startWitness() *witness {
	w := &witness{js: l.js, seen: map[string]map[uint64]bool{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for l.t.Context().Err() == nil {
			ctx, cancel := context.WithTimeout(l.t.Context(), l.tryFor)
			_ = w.catchUp(ctx) // NATS may be away: the last look, that of checkDatagrams, must succeed
			cancel()
			time.Sleep(200 * time.Millisecond)
		}
	}()
	l.t.Cleanup(func() { <-ended })
	return w
}

// catchUp reads what is new in the stream.
func (w *witness) catchUp(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	stream, err := w.js.Stream(ctx, wire.ObservationStream(site))
	if err != nil {
		return err
	}
	for last := stream.CachedInfo().State.LastSeq; w.read < last; w.read++ {
		m, err := stream.GetMsg(ctx, w.read+1)
		if err != nil {
			return fmt.Errorf("message %d: %w", w.read+1, err)
		}
		if err := w.note(m); err != nil {
			return fmt.Errorf("message %d: %w", w.read+1, err)
		}
	}
	return nil
}

func (w *witness) note(m *jetstream.RawStreamMsg) error {
	_, instrument, channel, err := wire.ParseObservationSubject(m.Subject)
	if err != nil || channel != "raw" {
		return err
	}
	if w.seen[instrument] == nil {
		w.seen[instrument] = map[uint64]bool{}
	}
	for d, err := range wire.Datagrams(m.Data) {
		if err != nil {
			return err
		}
		number, err := numberOf(instrument, d.Payload)
		if err != nil {
			return err
		}
		w.seen[instrument][number] = true
	}
	return nil
}

// compare says where other datagrams of an instrument are in segments than were in the stream.
func (w *witness) compare(instrument string, in map[uint64]int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	missing, unseen := 0, 0
	for number := range w.seen[instrument] {
		if in[number] == 0 {
			missing++
		}
	}
	for number := range in {
		if !w.seen[instrument][number] {
			unseen++
		}
	}
	if missing+unseen > 0 {
		return fmt.Errorf("%d of %d are not, and %d are that were never in the stream", missing, len(w.seen[instrument]), unseen)
	}
	return nil
}
