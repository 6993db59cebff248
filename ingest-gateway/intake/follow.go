// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/durable"
	"github.com/substorm/substorm/internal/watch"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// saveDelay gathers revisions that come together into one write.
	saveDelay = 200 * time.Millisecond
	// saveRetry is between tries to write to a volume that takes nothing.
	saveRetry = 2 * time.Second
)

// FollowerConfig says which registry is followed, and for whom.
type FollowerConfig struct {
	Site  string
	Scope Scope
	// File on the gateway's volume keeps the last complete registry.
	File     string
	Registry *Registry
	Logger   *slog.Logger
	// Apply opens the ports of a snapshot that is now in force, and returns why
	// it could not, by instrument. It is never called twice at a time.
	Apply func(*Snapshot) map[string]string
	// Changed is called after a snapshot was applied.
	Changed func()
}

// Follower keeps a Registry equal to the Site's.
type Follower struct {
	cfg    FollowerConfig
	bucket *bucket
	// unsaved is the last complete snapshot that is not on the volume yet.
	unsaved *Snapshot
	// unsavedWhy is why the last try to save it failed, and saveAgain when the
	// next is due.
	unsavedWhy string
	saveAgain  time.Time
}

// NewFollower puts the registry that was last seen in force.
func NewFollower(cfg FollowerConfig) *Follower {
	f := &Follower{cfg: cfg, bucket: &bucket{entries: map[string]bucketEntry{}}}
	if err := durable.Remove(cfg.File + durable.PartSuffix); err != nil {
		cfg.Logger.Warn("what an interrupted write left on the volume stays there", "error", err)
	}
	last, err := load(cfg.File, cfg.Site, cfg.Scope)
	if err != nil {
		cfg.Logger.Error("starting without the registry last seen", "error", err)
		return f
	}
	if last.Revision > 0 {
		cfg.Logger.Info("starting with the registry last seen", "revision", last.Revision, "instruments", len(last.instruments))
		f.apply(last)
	}
	return f
}

// Run follows the Site's registry until ctx ends. While NATS is away, what was
// last seen stays in force.
func (f *Follower) Run(ctx context.Context, js jetstream.JetStream) {
	watch.Run(ctx, js, watch.Config{
		Bucket: wire.RegistryBucket(f.cfg.Site), What: "the registry", Logger: f.cfg.Logger,
		Begin: func(b watch.Bucket) {
			f.bucket = &bucket{epoch: b.Created, entries: map[string]bucketEntry{}}
		},
		Take:   f.take,
		Settle: f.resolve,
		Tick: func(now time.Time) {
			if !now.Before(f.saveAgain) {
				f.save()
			}
		},
		TickInterval: saveDelay,
		End:          f.save, // also where NATS is away: the volume may be back
	})
}

// take notes one change of the bucket.
func (f *Follower) take(e jetstream.KeyValueEntry) {
	name, isInstrument := wire.ParseRegistryInstrumentKey(e.Key())
	switch {
	case e.Key() == wire.RegistryCompleteKey && e.Operation() == jetstream.KeyValuePut:
		marker, err := wire.Decode[wire.RegistryComplete](e.Value())
		if err != nil {
			f.cfg.Logger.Error("the registry's marker cannot be read: nothing is removed", "error", err)
		}
		f.bucket.marker = marker
	case e.Key() == wire.RegistryCompleteKey:
		f.bucket.marker = wire.RegistryComplete{}
	case isInstrument && e.Operation() == jetstream.KeyValuePut:
		f.bucket.set(name, e.Value())
	case isInstrument:
		delete(f.bucket.entries, name)
	}
}

// put notes an entry under the instrument that it names.
func (b *bucket) put(raw []byte) {
	var head struct {
		Instrument string `json:"instrument"`
	}
	_ = json.Unmarshal(raw, &head) // what cannot be read is said by set
	b.set(head.Instrument, raw)
}

// set notes an entry, or why it cannot be read.
func (b *bucket) set(name string, raw []byte) {
	entry, err := wire.Decode[wire.InstrumentEntry](raw)
	var in *Instrument
	if err == nil && entry.Instrument != name {
		err = fmt.Errorf("the entry under %q names instrument %q: %w", name, entry.Instrument, wire.ErrMalformed)
	}
	if err == nil {
		in, err = NewInstrument(entry)
	}
	if err != nil {
		b.entries[name] = bucketEntry{problem: "registry entry: " + err.Error()}
		return
	}
	if old := b.entries[name].instrument; old != nil && bytes.Equal(encoded(old), encoded(in)) {
		return // written again, unchanged: ways keep their identity
	}
	b.entries[name] = bucketEntry{instrument: in}
}

func encoded(in *Instrument) []byte {
	b, _ := wire.Encode(in.entry) // it came from JSON
	return b
}

// resolve puts in force what follows from the bucket.
func (f *Follower) resolve() {
	prev := f.cfg.Registry.Current()
	next := resolve(prev, f.bucket, f.cfg.Scope)
	for name, problem := range next.Problems {
		if prev.Problems[name] != problem {
			f.cfg.Logger.Warn("instrument is not received as declared", "instrument", name, "problem", problem)
		}
	}
	if next.Revision != prev.Revision {
		f.cfg.Logger.Info("registry", "revision", next.Revision, "instruments", len(next.instruments))
	}
	f.apply(next)
	if next.complete {
		f.unsaved = next
	}
}

// save writes the last complete snapshot to the volume, where it is not there
// yet. What could not be written is tried again.
func (f *Follower) save() {
	if f.unsaved == nil {
		return
	}
	if err := f.unsaved.save(f.cfg.File, f.cfg.Site); err != nil {
		f.saveAgain = time.Now().Add(saveRetry)
		if err.Error() != f.unsavedWhy {
			f.unsavedWhy = err.Error()
			f.cfg.Logger.Error("a start without NATS would not know the registry: saving it is tried again", "error", err)
		}
		return
	}
	if f.unsavedWhy != "" {
		f.cfg.Logger.Info("the registry is saved again", "revision", f.unsaved.Revision)
	}
	f.unsaved, f.unsavedWhy, f.saveAgain = nil, "", time.Time{}
}

// apply puts a snapshot in force: first who may send, then the ports.
func (f *Follower) apply(s *Snapshot) {
	f.cfg.Registry.current.Store(s)
	failed := f.cfg.Apply(s)
	if len(failed) > 0 {
		withPorts := *s
		withPorts.Problems = map[string]string{}
		for _, problems := range []map[string]string{s.Problems, failed} {
			for name, problem := range problems {
				withPorts.Problems[name] = problem
			}
		}
		f.cfg.Registry.current.Store(&withPorts)
	}
	f.cfg.Changed()
}
