// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// behindPause is between two questions of the leader while a replica catches up.
	behindPause = 250 * time.Millisecond
	// entryPatience bounds the wait for the next entry. However many there are, each gets as long.
	entryPatience = 10 * time.Second
)

// Entries calls f for each entry that a bucket holds under keys that match, in the order
// in which they were last written. All that was written before the call is seen, also
// where the replica that answers is behind: the bucket's leader says what there is, and
// the replica is waited for. The entries are held until all have come. Errors: f's, ctx's,
// and what keeps JetStream from answering.
func Entries(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, match string, f func(jetstream.KeyValueEntry) error) error {
	name, subjects := "KV_"+kv.Bucket(), "$KV."+kv.Bucket()+"."+match
	newest, err := LastOf(ctx, js, name, subjects)
	if err != nil {
		return err
	}
	held, seen, complete := map[string]jetstream.KeyValueEntry{}, uint64(0), false
	err = watch(ctx, kv, match, func(e jetstream.KeyValueEntry) (bool, error) {
		switch {
		case e == nil && complete: // the replica is behind; what was newest may be gone meanwhile
			newest, err = LastOf(ctx, js, name, subjects)
		case e == nil:
			complete = true
		default:
			seen = e.Revision()
			if delete(held, e.Key()); e.Operation() == jetstream.KeyValuePut {
				held[e.Key()] = e
			}
		}
		return complete && seen >= newest, err
	})
	if err != nil {
		return err
	}
	for _, e := range slices.SortedFunc(maps.Values(held), func(a, b jetstream.KeyValueEntry) int { return cmp.Compare(a.Revision(), b.Revision()) }) {
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}

// EntriesOf is Entries of a bucket by its name.
func EntriesOf(ctx context.Context, js jetstream.JetStream, bucket, match string, f func(jetstream.KeyValueEntry) error) error {
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucket, err)
	}
	return Entries(ctx, js, kv, match, f)
}

// EntriesSince calls f for each entry that was written after a revision, 0 for each that
// there is, in the order in which they were last written, as one replica has them: it may
// be behind, and what it does not have yet comes with a later call. Entries have no
// values. Errors: those of Entries.
func EntriesSince(ctx context.Context, kv jetstream.KeyValue, match string, revision uint64, f func(jetstream.KeyValueEntry) error) error {
	opts := []jetstream.WatchOpt{jetstream.MetaOnly(), jetstream.IgnoreDeletes()}
	if revision > 0 {
		opts = append(opts, jetstream.ResumeFromRevision(revision+1))
	}
	return watch(ctx, kv, match, func(e jetstream.KeyValueEntry) (bool, error) {
		if e == nil {
			return true, nil
		}
		return false, f(e)
	}, opts...)
}

// watch calls f for each entry until it returns true or an error; with nil when all that
// the replica had has come, and again after each pause.
func watch(ctx context.Context, kv jetstream.KeyValue, match string, f func(jetstream.KeyValueEntry) (bool, error), opts ...jetstream.WatchOpt) error {
	w, err := kv.Watch(ctx, match, opts...)
	if err != nil {
		return fmt.Errorf("read bucket %s: %w", kv.Bucket(), err)
	}
	defer func() { _ = w.Stop() }() // it ends with the connection at the latest
	silence := time.NewTimer(entryPatience)
	defer silence.Stop()
	var pause <-chan time.Time
	for {
		var e jetstream.KeyValueEntry
		select {
		case next, more := <-w.Updates():
			if !more {
				return fmt.Errorf("read bucket %s: the connection ended", kv.Bucket())
			}
			e = next
			silence.Reset(entryPatience)
		case <-pause:
		case <-silence.C:
			return fmt.Errorf("read bucket %s: no entry for %v, and more are due: check that all NATS servers run", kv.Bucket(), entryPatience)
		case <-ctx.Done():
			return ctx.Err()
		}
		if e == nil {
			pause = time.After(behindPause)
		}
		if done, err := f(e); done || err != nil {
			return err
		}
	}
}
