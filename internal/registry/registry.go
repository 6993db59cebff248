// SPDX-License-Identifier: Apache-2.0

// Package registry follows the Site's registry: it knows the Feeds, their consumers, the named readers, the partners of mirrors and
// what each instrument says about who may read it, as the operator writes them
// into JetStream. While NATS or the operator is away, what was last seen stays in
// force.
package registry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/watch"
	"github.com/substorm/substorm/internal/wire"
)

// Snapshot is the registry as of one moment. It never changes: do not write to
// its maps.
type Snapshot struct {
	// Revision of the last complete registry that the snapshot holds; 0 before the first.
	Revision int64
	// Problems are entries that cannot be read, by key.
	Problems map[string]string

	Feeds     map[string]wire.FeedEntry
	Consumers map[string]wire.ConsumerEntry
	Readers   map[string]wire.ReaderEntry
	// Instruments are the Site's own, and by their names here those of other Sites that mirrors bring in.
	Instruments map[string]wire.InstrumentEntry
	Mirrors     map[string]wire.MirrorEntry
	// Movers are the certificates that the runs of a partner show to gateways, while they last.
	Movers map[string][]wire.Digest

	guests map[string]wire.GuestEntry
	// hold: the Site is under legal hold.
	hold bool

	// Epoch of the bucket that the last complete registry came from.
	Epoch time.Time
	// Complete: the snapshot holds nothing but the registry of Revision.
	Complete bool
}

// Unread says whether the registry has an entry of an instrument that cannot be read: what
// the snapshot has of it was read before, or is nothing. A legal hold may have come since.
func (s *Snapshot) Unread(instrument string) bool {
	return s.Problems[wire.RegistryInstrumentKey(instrument)] != ""
}

// Registry is the snapshot in force. Any number of goroutines may ask it.
type Registry struct {
	mu      sync.Mutex
	current *Snapshot
	changed chan struct{}
	// newest: what is in force holds all that the leader of the bucket held.
	newest, live bool
}

// New returns an empty registry.
func New() *Registry { return From(newSnapshot()) }

// From returns a registry in which a snapshot is in force.
func From(s *Snapshot) *Registry { return &Registry{current: s, changed: make(chan struct{})} }

// Snapshot returns what is in force.
func (r *Registry) Snapshot() *Snapshot {
	s, _ := r.Watch()
	return s
}

// Watch returns what is in force, and a channel that is closed when something else is.
func (r *Registry) Watch() (*Snapshot, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current, r.changed
}

// Live says whether what is in force goes back to a complete registry that the leader of the
// Site's bucket held since NATS was reached last: what was seen before an outage, or on a
// replica that is behind, does not know what was put under legal hold since. It is always
// false where the registry is not followed by FollowNewest.
func (r *Registry) Live() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live
}

func (r *Registry) setNewest(newest bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest, r.live = newest, newest && r.current.Complete
}

func (r *Registry) set(s *Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.live = s, r.live || r.newest && s.Complete
	close(r.changed)
	r.changed = make(chan struct{})
}

// Follow keeps the registry equal to the Site's until ctx ends.
func (r *Registry) Follow(ctx context.Context, js jetstream.JetStream, site string, log *slog.Logger) {
	r.FollowEach(ctx, js, site, log, func(*Snapshot) {})
}

// FollowEach is Follow for who needs every snapshot: each is called with them, one at a time
// and in their order, once they are in force.
func (r *Registry) FollowEach(ctx context.Context, js jetstream.JetStream, site string, log *slog.Logger, each func(*Snapshot)) {
	r.follow(ctx, js, site, log, nil, each)
}

// FollowNewest is Follow for who needs Live. It asks the leader of the bucket what it holds.
func (r *Registry) FollowNewest(ctx context.Context, js jetstream.JetStream, site string, log *slog.Logger) {
	r.follow(ctx, js, site, log, func() { r.setNewest(true) }, func(*Snapshot) {})
}

func (r *Registry) follow(ctx context.Context, js jetstream.JetStream, site string, log *slog.Logger, newest func(), each func(*Snapshot)) {
	var b *Bucket
	watch.Run(ctx, js, watch.Config{
		Bucket: wire.RegistryBucket(site), What: "the registry", Logger: log,
		Begin: func(bucket watch.Bucket) {
			r.setNewest(false)
			b = NewBucket(bucket.Created)
		},
		End:    func() { r.setNewest(false) },
		Newest: newest,
		Take:   func(e jetstream.KeyValueEntry) { b.Take(e.Key(), e.Value(), e.Operation() == jetstream.KeyValuePut) },
		Settle: func() {
			before := r.Snapshot()
			now := Resolve(before, b)
			for key, problem := range now.Problems {
				if before.Problems[key] != problem {
					log.Error("cannot read a registry entry; its last known state stays in force", "entry", key, "error", problem)
				}
			}
			if now.Revision != before.Revision {
				log.Info("registry", "revision", now.Revision, "instruments", len(now.Instruments), "feeds", len(now.Feeds), "consumers", len(now.Consumers))
			}
			r.set(now)
			each(now)
		},
	})
}
