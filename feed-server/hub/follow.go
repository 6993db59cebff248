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

	"github.com/substorm/substorm/internal/stream"
)

const (
	// readMost messages are asked for at a time, and readWait is how long the first
	// of them is waited for.
	readMost = 512
	readWait = 5 * time.Second
	// The pauses between tries while JetStream is away.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Config says what to follow.
type Config struct {
	JetStream jetstream.JetStream
	Stream    string
	// RingBytes is how much of the stream's end is held in memory.
	RingBytes int
	Logger    *slog.Logger
}

// Hub follows one stream for all of its consumers.
type Hub struct {
	cfg Config

	mu      sync.Mutex
	current Place
	// known is closed once there is a current ring, and anew where it changes.
	known chan struct{}
}

// Place is a ring and the stream that it is of.
type Place struct {
	Ring *Ring
	// Epoch of the stream, see wire.StreamEpoch.
	Epoch string
}

// New returns a hub that follows nothing yet.
func New(cfg Config) *Hub { return &Hub{cfg: cfg, known: make(chan struct{})} }

// Run follows the stream until ctx ends: through restarts of JetStream, and on
// into a stream that was made anew.
func (h *Hub) Run(ctx context.Context) {
	said := false
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := h.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > lastPause {
			pause, said = firstPause, false
		}
		if !said {
			h.cfg.Logger.Warn("the stream cannot be followed: consumers wait", "stream", h.cfg.Stream, "error", err)
			said = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
	h.replace(Place{}, context.Cause(ctx))
}

// follow reads until something fails.
func (h *Hub) follow(ctx context.Context) error {
	epoch, state, err := stream.Epoch(ctx, h.cfg.JetStream, h.cfg.Stream)
	if err != nil {
		return err
	}
	h.mu.Lock()
	ring := h.current.Ring
	same := ring != nil && h.current.Epoch == epoch
	h.mu.Unlock()
	if !same {
		ring = NewRing(h.cfg.RingBytes, state.LastSeq+1)
		h.replace(Place{ring, epoch}, stream.ErrEpoch)
	}
	_, next := ring.Span()
	reader := stream.NewReader(h.cfg.JetStream, stream.ReaderConfig{Stream: h.cfg.Stream, Epoch: epoch, Start: next})
	for {
		read, err := reader.Next(ctx, readMost, readWait)
		if errors.Is(err, stream.ErrEpoch) {
			return nil // the next one begins with it
		}
		if err != nil {
			return err
		}
		messages := make([]*Message, len(read))
		for i, m := range read {
			messages[i] = &Message{Sequence: m.Sequence, At: m.At, Subject: m.Subject, Header: m.Header, Data: m.Data}
		}
		next, _ := reader.Position()
		if err := ring.Add(messages, next); err != nil {
			return fmt.Errorf("stream %s: %w", h.cfg.Stream, err)
		}
	}
}

// replace makes a ring the current one. Who reads the one before gets why.
func (h *Hub) replace(p Place, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current.Ring != nil {
		h.current.Ring.End(why)
	}
	h.current = p
	if p.Ring != nil {
		close(h.known)
		h.known = make(chan struct{})
	}
}

// Current returns the ring, once there is one. Error: ctx's.
func (h *Hub) Current(ctx context.Context) (Place, error) {
	for {
		h.mu.Lock()
		current, known := h.current, h.known
		h.mu.Unlock()
		if current.Ring != nil {
			return current, nil
		}
		select {
		case <-known:
		case <-ctx.Done():
			return Place{}, ctx.Err()
		}
	}
}
