// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/retry"
)

// slowest is the rate, in bytes a second, below which a request is given up.
const slowest = 1 << 20

// The pauses between tries.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

var errAway = fmt.Errorf("no object was stored within the time that objects may wait: %w", objectstore.ErrUnavailable)

// health knows when the store last did something.
type health struct {
	last atomic.Int64
	// failed is when the store last did not answer; 0 once it did.
	failed atomic.Int64
	// taken counts the objects that the store took.
	taken atomic.Uint64
}

// awayFor is how long after a failure the store is not asked by callers that can do without: what
// drains from the spool asks it anyway.
const awayFor = 5 * time.Second

// away says whether the last that was heard of the store, just now, is that it
// does not answer.
func (h *health) away() bool {
	failed := h.failed.Load()
	return failed != 0 && time.Now().UnixNano()-failed < int64(awayFor)
}

func (h *health) succeeded() {
	h.last.Store(time.Now().UnixNano())
	h.failed.Store(0)
}

// note notes an error of a request, unless the request was given up.
func (h *health) note(ctx context.Context, err error) {
	if isAway(err) && !errors.Is(ctx.Err(), context.Canceled) {
		h.failed.Store(time.Now().UnixNano())
	}
}

// isAway says whether an object may go to the spool instead.
func isAway(err error) bool {
	return errors.Is(err, objectstore.ErrUnavailable) || errors.Is(err, objectstore.ErrNoBucket) || errors.Is(err, objectstore.ErrAccessDenied)
}

// watch returns a context that ends once neither a request has succeeded nor the caller begun
// within patience. So a store that is merely slow is waited for, however long the queue, and one
// that is away fails all waiting callers at once.
func (h *health) watch(ctx context.Context, patience time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	began := time.Now().UnixNano()
	var timer *time.Timer
	ready := make(chan struct{})
	timer = time.AfterFunc(patience, func() {
		<-ready
		idle := time.Duration(time.Now().UnixNano() - max(began, h.last.Load()))
		if idle >= patience {
			cancel(errAway)
			return
		}
		timer.Reset(patience - idle)
	})
	close(ready)
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// stores are the operations after which there is another object in the store.
var stores = map[string]bool{"put": true, "pack": true, "complete": true, "copy": true}

// request runs f, one of a bounded number at a time, and again with pauses while
// the store is unavailable, until Patience is at its end. Size is how many bytes
// f moves. Errors are f's last.
func (a *Archive) request(ctx context.Context, operation string, size int64, f func(context.Context) error) error {
	ctx, stop := a.health.watch(ctx, a.cfg.Patience)
	defer stop()
	if err := a.slots.Acquire(ctx, 1); err != nil {
		a.health.note(ctx, objectstore.ErrUnavailable)
		return fmt.Errorf("%s: %w: %w", operation, objectstore.ErrUnavailable, context.Cause(ctx))
	}
	defer a.slots.Release(1)
	moving := time.Duration(size) * time.Second / slowest
	// Others may succeed while this one never does: it has an end of its own too.
	ctx, cancel := context.WithTimeout(ctx, 4*(a.cfg.Patience+moving))
	defer cancel()
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := a.try(ctx, a.cfg.Patience/2+moving, f)
		if err == nil {
			a.health.succeeded()
			if stores[operation] {
				a.health.taken.Add(1)
			}
			a.metrics.stored(operation, time.Since(began))
			return nil
		}
		a.health.note(ctx, err)
		if ctx.Err() != nil {
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
		if !worthAnotherTry(err) {
			return err
		}
		a.metrics.failed(operation)
		if !retry.Sleep(ctx, pause/2+rand.N(pause/2)) {
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}

// Request asks the store for something beside objects, as patiently as for these
// and within the same bound on requests. Size is how many bytes f moves. Errors
// are f's last.
func (a *Archive) Request(ctx context.Context, operation string, size int64, f func(context.Context) error) error {
	return a.request(ctx, operation, size, f)
}

func (a *Archive) try(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx)
}

// worthAnotherTry: a bucket that is missing, or credentials that are refused,
// may be on their way too.
func worthAnotherTry(err error) bool {
	for _, kind := range []error{
		objectstore.ErrUnavailable, objectstore.ErrNoBucket, objectstore.ErrAccessDenied, objectstore.ErrDigest,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
