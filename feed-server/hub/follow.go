// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
)

// The pauses between tries while JetStream is away.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Config says what to follow.
type Config struct {
	JetStream jetstream.JetStream
	Stream    string
	// Budget bounds how much of the stream's end is held in memory; streams may share it.
	Budget *Budget
	Logger *slog.Logger
}

// Hub follows one stream for all of its consumers.
type Hub struct {
	cfg Config

	mu      sync.Mutex
	current Place
	// changed is closed when the current ring is replaced.
	changed chan struct{}
}

// Place is a ring and the stream that it is of.
type Place struct {
	Ring *Ring
	// Epoch of the stream, see wire.StreamEpoch.
	Epoch string
}

// New returns a hub that follows nothing yet.
func New(cfg Config) *Hub { return &Hub{cfg: cfg, changed: make(chan struct{})} }

// Run follows the stream until ctx ends: through restarts of JetStream, and into a recreated
// stream.
func (h *Hub) Run(ctx context.Context) {
	said := false
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := h.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, stream.ErrEpoch) {
			continue // the next one begins with it
		}
		if time.Since(began) > lastPause {
			pause, said = firstPause, false
		}
		if !said {
			h.cfg.Logger.Warn("cannot follow the stream; consumers wait", "stream", h.cfg.Stream, "error", err)
			said = true
		}
		retry.Sleep(ctx, pause/2+rand.N(pause))
	}
	h.replace(Place{}, context.Cause(ctx))
}

// follow reads until something fails.
func (h *Hub) follow(ctx context.Context) error {
	epoch, state, err := stream.Epoch(ctx, h.cfg.JetStream, h.cfg.Stream)
	if err != nil {
		return err
	}
	place, _ := h.currentPlace()
	ring := place.Ring
	if ring == nil || place.Epoch != epoch {
		ring = h.cfg.Budget.NewRing(state.LastSeq + 1)
		h.replace(Place{ring, epoch}, stream.ErrEpoch)
	}
	ring.Skip(state.FirstSeq)
	_, next := ring.Span()
	return stream.Tail(ctx, h.cfg.JetStream, stream.ReaderConfig{Stream: h.cfg.Stream, Epoch: epoch, Start: next}, func(came []stream.Message) error {
		came, err := h.afterHole(ctx, ring, next, came)
		if err != nil {
			return err
		}
		messages := make([]*Message, len(came))
		for i, m := range came {
			messages[i] = newMessage(m)
		}
		next = came[len(came)-1].Sequence + 1
		if err := ring.Add(messages, next); err != nil {
			return fmt.Errorf("stream %s: %w", h.cfg.Stream, err)
		}
		return nil
	})
}

// afterHole has the ring begin again behind the last hole in what came, and returns the messages
// behind it. Consumers read earlier messages from the stream, which also shows which are gone.
func (h *Hub) afterHole(ctx context.Context, ring *Ring, next uint64, came []stream.Message) ([]stream.Message, error) {
	if came[len(came)-1].Sequence == next+uint64(len(came))-1 {
		return came, nil
	}
	_, state, err := stream.Epoch(ctx, h.cfg.JetStream, h.cfg.Stream)
	if err != nil {
		return nil, err
	}
	for i := len(came) - 1; i >= 0; i-- {
		before := next
		if i > 0 {
			before = came[i-1].Sequence + 1
		}
		if deleted(state, before, came[i].Sequence) {
			ring.Skip(came[i].Sequence)
			return came[i:], nil
		}
	}
	return came, nil
}

// replace makes a ring the current one. Readers of the one before get why as their error.
func (h *Hub) replace(p Place, why error) {
	h.mu.Lock()
	was := h.current
	h.current = p
	close(h.changed)
	h.changed = make(chan struct{})
	h.mu.Unlock()
	if was.Ring != nil {
		was.Ring.End(why)
	}
}

// currentPlace returns the current ring, if there is one, and what is closed when there is
// another.
func (h *Hub) currentPlace() (Place, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current, h.changed
}

// Current returns the ring, once there is one. Error: ctx's.
func (h *Hub) Current(ctx context.Context) (Place, error) {
	for {
		current, changed := h.currentPlace()
		if current.Ring != nil {
			return current, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Place{}, ctx.Err()
		}
	}
}
