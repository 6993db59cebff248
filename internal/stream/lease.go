// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/boottime"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

// ErrLeaseLost: the lease ran out before it could be renewed, or another holds it.
var ErrLeaseLost = errors.New("the lease is lost")

// A lease of time-to-live T is renewed every T/3. Its holder stops at 4/5 T after the last renewal that succeeded was
// sent, so that a write which began before that has T/5 to arrive until the server lets another holder in. Whatever
// arrives later still must be stopped by a fence (create-only, expected revision).
const (
	renewalsPerTTL = 3
	usableTTL      = 0.8
	lookTimeout    = 2 * time.Second // an answer that a lost connection owes never comes
)

// Lease is held by one process at a time: an entry of a key-value bucket whose entries expire.
type Lease struct {
	kv       jetstream.KeyValue
	key      string
	value    []byte
	ttl      time.Duration
	log      *slog.Logger
	stop     chan struct{} // closed by Release
	finished chan struct{} // closed when renewing has ended
	lost     chan struct{}

	// now is a clock that runs on while the machine is suspended.
	now func() time.Duration

	mu       sync.Mutex
	revision uint64
	deadline time.Duration // as now says
	over     bool
}

// AcquireLease waits until it holds the lease, and then renews it until it is lost or released. Holder says who we are; its Incarnation
// must be no other process's. The bucket's TTL is the lease's. Errors: those of ctx, and a bucket whose entries do not expire. If
// JetStream is unavailable, it keeps trying.
func AcquireLease(ctx context.Context, kv jetstream.KeyValue, key string, holder wire.Lease, log *slog.Logger) (*Lease, error) {
	for first := true; ; first = false {
		l, wait, err := tryLease(ctx, kv, key, holder, log)
		if l != nil || err != nil {
			return l, err
		}
		if first {
			log.Debug("waiting for the lease", "lease", key)
		}
		if !retry.Sleep(ctx, wait) {
			return nil, fmt.Errorf("acquire lease %s: %w", key, ctx.Err())
		}
	}
}

// tryLease returns the lease where it is free, else how long to wait before the next try.
func tryLease(ctx context.Context, kv jetstream.KeyValue, key string, holder wire.Lease, log *slog.Logger) (*Lease, time.Duration, error) {
	call, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	status, err := kv.Status(call)
	if err != nil {
		log.Warn("the lease's bucket does not answer", "lease", key, "error", err)
		return nil, jitter(time.Second), nil
	}
	ttl := status.TTL()
	if ttl <= 0 {
		return nil, 0, fmt.Errorf("acquire lease %s: entries of bucket %s do not expire", key, kv.Bucket())
	}
	wait := jitter(ttl / 5)
	if _, err := kv.Get(call, key); !errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, wait, nil // held, or unknown
	}
	holder.Since = time.Now().UTC()
	value, err := wire.Encode(holder)
	if err != nil {
		return nil, 0, fmt.Errorf("acquire lease %s: %w", key, err)
	}
	sent := boottime.Now()
	revision, err := kv.Create(call, key, value)
	if err != nil {
		return nil, wait, nil // another was faster; if it was us, that entry expires
	}
	l := &Lease{kv: kv, key: key, value: value, ttl: ttl, log: log, stop: make(chan struct{}),
		finished: make(chan struct{}), lost: make(chan struct{}), revision: revision, now: boottime.Now, deadline: sent + usable(ttl)}
	go l.renew()
	return l, 0, nil
}

func usable(ttl time.Duration) time.Duration { return time.Duration(float64(ttl) * usableTTL) }

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// Check returns nil while the lease is ours for certain, and ErrLeaseLost from then on. A writer under the lease calls it before each
// write: a process that was stopped, or whose machine was suspended, and that continues later notices the loss here, before anything
// else.
func (l *Lease) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.now() >= l.deadline {
		return fmt.Errorf("lease %s: %w", l.key, ErrLeaseLost)
	}
	return nil
}

// Lost is closed when the lease is lost; it stays open when it is released.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Release gives the lease back, so that another need not wait until it expires. Nothing may be written any more when it
// is called. It is called once.
func (l *Lease) Release(ctx context.Context) error {
	close(l.stop)
	<-l.finished // a renewal that is on its way decides the revision
	l.mu.Lock()
	ours, revision := !l.over && l.now() < l.deadline, l.revision
	l.over = true
	l.mu.Unlock()
	if !ours {
		return nil
	}
	if err := l.kv.Delete(ctx, l.key, jetstream.LastRevision(revision)); err != nil {
		return fmt.Errorf("release lease %s: %w", l.key, err)
	}
	return nil
}

func (l *Lease) renew() {
	defer close(l.finished)
	tick := time.NewTicker(l.ttl / renewalsPerTTL)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		if l.Check() == nil {
			l.renewOnce()
		}
		if l.Check() != nil {
			l.mu.Lock()
			l.over = true
			l.mu.Unlock()
			l.log.Warn("the lease is lost", "lease", l.key)
			close(l.lost)
			return
		}
	}
}

func (l *Lease) renewOnce() {
	call, cancel := context.WithTimeout(context.Background(), l.ttl/renewalsPerTTL)
	defer cancel()
	sent := l.now()
	revision, err := l.kv.Update(call, l.key, l.value, l.revision)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		// Another's entry, or our own of a renewal whose answer was lost.
		entry, getErr := l.kv.Get(call, l.key)
		switch {
		case getErr == nil && string(entry.Value()) == string(l.value):
			sent = l.now()
			revision, err = l.kv.Update(call, l.key, l.value, entry.Revision())
		case getErr == nil, errors.Is(getErr, jetstream.ErrKeyNotFound):
			l.end()
			return
		}
	}
	if err != nil {
		l.log.Warn("the lease could not be renewed", "lease", l.key, "error", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision, l.deadline = revision, sent+usable(l.ttl)
}

func (l *Lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}
