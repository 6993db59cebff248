// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Behind is a JetStream of whose buckets a replica answers that has nothing after a revision:
// reads of a key always, watches until CatchUp is closed. The buckets keep history.
type Behind struct {
	jetstream.JetStream
	Revision uint64
	CatchUp  chan struct{}
}

// KeyValue returns a bucket.
func (b *Behind) KeyValue(ctx context.Context, name string) (jetstream.KeyValue, error) {
	kv, err := b.JetStream.KeyValue(ctx, name)
	return behindBucket{kv, b}, err
}

type behindBucket struct {
	jetstream.KeyValue
	behind *Behind
}

// Get returns the value of a key that the replica has.
func (b behindBucket) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	all, err := b.History(ctx, key)
	if err != nil {
		return nil, err
	}
	for _, e := range slices.Backward(all) {
		if e.Revision() <= b.behind.Revision {
			return e, nil
		}
	}
	return nil, jetstream.ErrKeyNotFound
}

// WatchAll watches all keys, with the values that they had.
func (b behindBucket) WatchAll(ctx context.Context, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	w, err := b.KeyValue.WatchAll(ctx, append(opts, jetstream.IncludeHistory())...)
	if err != nil {
		return nil, err
	}
	late := behindWatcher{w, make(chan jetstream.KeyValueEntry)}
	go late.run(ctx, b.behind)
	return late, nil
}

type behindWatcher struct {
	jetstream.KeyWatcher
	updates chan jetstream.KeyValueEntry
}

// Updates returns what comes, first what the replica has.
func (w behindWatcher) Updates() <-chan jetstream.KeyValueEntry { return w.updates }

func (w behindWatcher) run(ctx context.Context, behind *Behind) {
	defer close(w.updates)
	send := func(e jetstream.KeyValueEntry) {
		select {
		case w.updates <- e:
		case <-ctx.Done():
		}
	}
	var held []jetstream.KeyValueEntry
	for e := range w.KeyWatcher.Updates() {
		if e != nil && e.Revision() > behind.Revision {
			held = append(held, e)
			continue
		}
		send(e)
		if e == nil {
			break
		}
	}
	select {
	case <-behind.CatchUp:
	case <-ctx.Done():
	}
	for _, e := range held {
		send(e)
	}
	for e := range w.KeyWatcher.Updates() {
		send(e)
	}
}
