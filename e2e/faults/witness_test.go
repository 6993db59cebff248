// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	// seen is where each datagram was seen last, by instrument and number.
	seen map[string]map[uint64]sighting
}

// namedMessages is how many messages an error names: the stream is asked for each of them.
const namedMessages = 20

// sighting is a message of the stream, and when the stream took it.
type sighting struct {
	sequence uint64
	at       time.Time
}

func (l *lab) startWitness() *witness {
	w := &witness{js: l.js, seen: map[string]map[uint64]sighting{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for l.t.Context().Err() == nil {
			ctx, cancel := context.WithTimeout(l.t.Context(), l.tryFor)
			_ = w.catchUp(ctx) // NATS may be away: the last look, by checkDatagrams, must succeed
			cancel()
			time.Sleep(200 * time.Millisecond) // the servers have other work
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
		w.seen[instrument] = map[uint64]sighting{}
	}
	for d, err := range wire.Datagrams(m.Data) {
		if err != nil {
			return err
		}
		number, err := numberOf(instrument, d.Payload)
		if err != nil {
			return err
		}
		w.seen[instrument][number] = sighting{m.Sequence, m.Time}
	}
	return nil
}

// compare says where other datagrams of an instrument are in segments than were in the stream, and which messages of the stream held
// those that are not.
func (w *witness) compare(ctx context.Context, instrument string, in map[uint64]int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	missing, unseen := 0, 0
	messages := map[sighting]int{}
	for number, seen := range w.seen[instrument] {
		if in[number] == 0 {
			missing++
			messages[seen]++
		}
	}
	for number := range in {
		if _, seen := w.seen[instrument][number]; !seen {
			unseen++
		}
	}
	if missing+unseen == 0 {
		return nil
	}
	var where strings.Builder
	first := slices.SortedFunc(maps.Keys(messages), func(a, b sighting) int { return cmp.Compare(a.sequence, b.sequence) })
	for _, m := range first[:min(len(first), namedMessages)] {
		fmt.Fprintf(&where, "\n%d of message %d of %s, %s", messages[m], m.sequence, m.at.UTC().Format("15:04:05.000"), w.now(ctx, m))
	}
	return fmt.Errorf("%d of %d are not, and %d are that were never in the stream%s", missing, len(w.seen[instrument]), unseen, where.String())
}

// now says what the stream has in the place of a message that was seen.
func (w *witness) now(ctx context.Context, was sighting) string {
	stream, err := w.js.Stream(ctx, wire.ObservationStream(site))
	if err != nil {
		return err.Error()
	}
	m, err := stream.GetMsg(ctx, was.sequence)
	switch {
	case err != nil:
		return fmt.Sprintf("%v, its first is %d", err, stream.CachedInfo().State.FirstSeq)
	case m.Time.Equal(was.at):
		return "it is there"
	default:
		return fmt.Sprintf("another one is there, of %s at %s", m.Subject, m.Time.UTC().Format("15:04:05.000"))
	}
}
