// SPDX-License-Identifier: Apache-2.0

// Package descriptions knows what instruments said of their data at any time: the
// descriptions that the archive keeps, followed as they come.
package descriptions

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/watch"
	"github.com/substorm/substorm/internal/wire"
)

// Config says whose descriptions are followed.
type Config struct {
	Site      string
	JetStream jetstream.JetStream
	Log       *slog.Logger
}

// Descriptions are those of a Site. Its methods may be called from any goroutine; while
// NATS is away they tell what was last seen, and before it was reached nothing.
type Descriptions struct {
	cfg Config
	// all are the published descriptions of each instrument, ordered by From; neither map nor slices change.
	all atomic.Pointer[map[string][]wire.Description]
	// next is being read, and belongs to Run.
	next map[string][]wire.Description
	// reading: what the bucket held at the beginning is not all there yet.
	reading bool
}

// New returns descriptions; Run follows them.
func New(cfg Config) *Descriptions {
	d := &Descriptions{cfg: cfg}
	d.all.Store(&map[string][]wire.Description{})
	return d
}

// Run follows the descriptions until ctx ends, and returns nil.
func (d *Descriptions) Run(ctx context.Context) error {
	watch.Run(ctx, d.cfg.JetStream, watch.Config{
		Bucket: wire.DescriptionBucket(d.cfg.Site), What: "the descriptions of instruments", Logger: d.cfg.Log,
		Begin: func(watch.Bucket) { d.next, d.reading = map[string][]wire.Description{}, true }, Take: d.take, Settle: d.settle,
	})
	return nil
}

// All returns the descriptions of an instrument, the oldest first. The caller must not change them.
func (d *Descriptions) All(instrument string) []wire.Description { return (*d.all.Load())[instrument] }

// At returns the description of an instrument that was in force at a time; for a time before all of them, the first; false if there is no
// description.
func (d *Descriptions) At(instrument string, t time.Time) (wire.Description, bool) {
	return At(d.All(instrument), t)
}

// At is Descriptions.At of some of All's.
func At(all []wire.Description, t time.Time) (wire.Description, bool) {
	if len(all) == 0 {
		return wire.Description{}, false
	}
	after, _ := slices.BinarySearchFunc(all, t, func(d wire.Description, t time.Time) int {
		if d.From.After(t) {
			return 1
		}
		return -1
	})
	return all[max(after-1, 0)], true
}

// take notes one entry. It skips an entry that cannot be read, such as one of a newer Substorm.
func (d *Descriptions) take(e jetstream.KeyValueEntry) {
	instrument, _, _ := strings.Cut(e.Key(), ".")
	all := d.next[instrument]
	if e.Operation() != jetstream.KeyValuePut {
		d.next[instrument] = slices.DeleteFunc(slices.Clone(all), func(one wire.Description) bool { return one.EntryKey() == e.Key() })
		return
	}
	description, err := wire.Decode[wire.Description](e.Value())
	if err != nil || description.EntryKey() != e.Key() {
		d.cfg.Log.Warn("cannot read a description of an instrument; ignoring it", "entry", e.Key(), "error", err)
		return
	}
	if !d.reading {
		all = slices.Clone(all)
	}
	at, known := slices.BinarySearchFunc(all, description, func(a, b wire.Description) int { return strings.Compare(a.EntryKey(), b.EntryKey()) })
	if known {
		all[at] = description
	} else {
		all = slices.Insert(all, at, description)
	}
	d.next[instrument] = all
}

// settle tells what was noted.
func (d *Descriptions) settle() {
	d.reading = false
	told := maps.Clone(d.next)
	d.all.Store(&told)
}
