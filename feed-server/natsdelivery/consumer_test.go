// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// taken is what a consumer took and acknowledged.
type taken struct {
	mu      sync.Mutex
	numbers map[string][]int // by the subject's kind: "notice" and "obs"
	gaps    []wire.Gap
	ids     map[string]int
	headers []nats.Header
	// sequences of notices in the stream, by number.
	sequences map[int]uint64
}

func newTaken() *taken {
	return &taken{numbers: map[string][]int{}, ids: map[string]int{}, sequences: map[int]uint64{}}
}

// take reads a message as a consumer does.
func (k *taken) take(m jetstream.Msg) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ids[m.Headers().Get("ce-id")]++
	k.headers = append(k.headers, m.Headers())
	switch m.Headers().Get("ce-type") {
	case wire.TypeGap:
		g, err := wire.Decode[wire.Gap](m.Data())
		if err != nil {
			return err
		}
		k.gaps = append(k.gaps, g)
		return nil
	case wire.TypeNotice:
		var n struct{ Name string }
		if err := json.Unmarshal(m.Data(), &n); err != nil {
			return err
		}
		var number int
		if _, err := fmt.Sscan(n.Name, &number); err != nil {
			return err
		}
		k.numbers["notice"] = append(k.numbers["notice"], number)
		if meta, err := m.Metadata(); err == nil {
			k.sequences[number] = meta.Sequence.Stream
		}
		return nil
	}
	for d, err := range wire.Datagrams(m.Data()) {
		if err != nil {
			return err
		}
		var number int
		if _, err := fmt.Sscan(string(d.Payload), &number); err != nil {
			return err
		}
		k.numbers["obs"] = append(k.numbers["obs"], number)
	}
	return nil
}

func (k *taken) count(kind string) int { return len(k.distinct(kind)) }

func (k *taken) distinct(kind string) []int {
	all := k.all(kind)
	slices.Sort(all)
	return slices.Compact(all)
}

// all returns the numbers as they came.
func (k *taken) all(kind string) []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.numbers[kind])
}

// times returns how often each id came.
func (k *taken) times() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.ids)
}

func (k *taken) allHeaders() []nats.Header {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.headers)
}

func (k *taken) allGaps() []wire.Gap {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.gaps)
}

// consume reads a durable with plain nats.go until stop is called: each message is taken after
// pause, and acknowledged if ack returns true.
func consume(t *testing.T, nc *nats.Conn, stream, consumer string, k *taken, pause time.Duration, ack func(jetstream.Msg) bool) (stop func()) {
	t.Helper()
	js, err := jetstream.NewWithAPIPrefix(nc, wire.ConsumerAPI)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			durable, err := js.Consumer(ctx, stream, wire.ConsumerDurable(consumer, issue))
			if err != nil {
				time.Sleep(100 * time.Millisecond) // a consumer's pause before it asks again
				continue
			}
			readDurable(ctx, t, durable, k, pause, ack)
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	t.Cleanup(stop)
	return stop
}

func readDurable(ctx context.Context, t *testing.T, durable jetstream.Consumer, k *taken, pause time.Duration, ack func(jetstream.Msg) bool) {
	messages, err := durable.Messages(jetstream.PullMaxMessages(50), jetstream.PullExpiry(5*time.Second), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if errors.Is(err, jetstream.ErrNoHeartbeat) {
			continue
		}
		if err != nil {
			return // the durable may be recreated
		}
		if pause > 0 {
			time.Sleep(pause)
		}
		if ack != nil && !ack(m) {
			continue
		}
		if err := k.take(m); err != nil {
			t.Errorf("message on %s: %v", m.Subject(), err)
		}
		_ = m.Ack() // where it is lost it comes again
	}
}
