// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan"
)

const (
	// opTimeout bounds each write of the registry by itself: however many there are, each
	// gets as long.
	opTimeout = tryTimeout
	// maxWrites is how many writes wait for their answers at once.
	maxWrites = 64
)

// readRegistry reads all that stands in the registry.
func (l *link) readRegistry(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue) error {
	state := emptyRegistry()
	var complete *wire.RegistryComplete
	err := stream.Entries(ctx, js, kv, ">", func(entry jetstream.KeyValueEntry) (err error) {
		if entry.Key() == wire.RegistryCompleteKey {
			complete, err = decodeComplete(entry.Value())
		} else {
			err = readEntry(entry, state)
		}
		if err != nil {
			return fmt.Errorf("registry entry %s: %w", entry.Key(), err)
		}
		return nil
	})
	if err == nil {
		l.facts.setRegistry(state, complete, l.now())
	}
	return err
}

func emptyRegistry() plan.RegistryState {
	return plan.RegistryState{Entries: map[string]wire.InstrumentEntry{}, Feeds: map[string]wire.FeedEntry{},
		Consumers: map[string]wire.ConsumerEntry{}, Readers: map[string]wire.ReaderEntry{}}
}

// readEntry reads one entry of whichever kind.
func readEntry(entry jetstream.KeyValueEntry, into plan.RegistryState) error {
	if name, ok := wire.ParseRegistryInstrumentKey(entry.Key()); ok {
		return decodeEntry(entry, name, into.Entries, wire.Decode[wire.InstrumentEntry])
	}
	if name, ok := wire.ParseRegistryFeedKey(entry.Key()); ok {
		return decodeEntry(entry, name, into.Feeds, wire.Decode[wire.FeedEntry])
	}
	if name, ok := wire.ParseRegistryConsumerKey(entry.Key()); ok {
		return decodeEntry(entry, name, into.Consumers, wire.Decode[wire.ConsumerEntry])
	}
	if name, ok := wire.ParseRegistryReaderKey(entry.Key()); ok {
		return decodeEntry(entry, name, into.Readers, wire.Decode[wire.ReaderEntry])
	}
	return nil
}

// decodeEntry: an entry that can't be read differs from every plan and is written anew.
func decodeEntry[E any](entry jetstream.KeyValueEntry, name string, into map[string]E, decode func([]byte) (E, error)) error {
	e, err := decode(entry.Value())
	if errors.Is(err, wire.ErrNewerFormat) {
		return err
	}
	into[name] = e
	return nil
}

func readComplete(ctx context.Context, kv jetstream.KeyValue) (*wire.RegistryComplete, error) {
	value, err := kv.Get(ctx, wire.RegistryCompleteKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("registry marker: %w", err)
	}
	return decodeComplete(value.Value())
}

// decodeComplete: a marker that can't be read is none.
func decodeComplete(data []byte) (*wire.RegistryComplete, error) {
	complete, err := wire.Decode[wire.RegistryComplete](data)
	if errors.Is(err, wire.ErrMalformed) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("registry marker: %w", err)
	}
	return &complete, nil
}

// registryStands says whether the registry is the one that was last written.
func (l *link) registryStands(ctx context.Context) bool {
	l.mu.Lock()
	kv := l.registry
	l.mu.Unlock()
	if kv == nil {
		return false
	}
	_, _, _, before := l.facts.snapshot()
	is, err := readComplete(ctx, kv)
	_, _, _, after := l.facts.snapshot()
	if before != after { // it was written meanwhile
		return err == nil
	}
	return err == nil && (is == nil) == (after == nil) && (is == nil || *is == *after)
}

// write brings a change to the registry, and remembers it. After an error what
// stands is read anew, so that the next change begins where this one stopped.
func (l *link) write(ctx context.Context, change plan.RegistryChange) error {
	l.mu.Lock()
	js, kv := l.js, l.registry
	l.mu.Unlock()
	if kv == nil {
		return errNotConnected
	}
	if err := putRegistry(ctx, kv, change); err != nil {
		return errors.Join(err, l.readRegistry(ctx, js, kv))
	}
	l.facts.changeRegistry(change, l.now())
	return nil
}

// putRegistry writes entries, removes what is gone, and then says that the
// snapshot is complete.
func putRegistry(ctx context.Context, kv jetstream.KeyValue, change plan.RegistryChange) error {
	for _, kind := range puts(change) {
		err := atOnce(ctx, kind, func(ctx context.Context, put registryPut) error {
			data, err := wire.Encode(put.record)
			if err == nil {
				_, err = kv.Put(ctx, put.key, data)
			}
			if err != nil {
				return fmt.Errorf("registry entry %s: %w", put.key, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, kind := range deletes(change) {
		err := atOnce(ctx, kind, func(ctx context.Context, key string) error {
			if err := kv.Delete(ctx, key); err != nil {
				return fmt.Errorf("registry entry %s: %w", key, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	data, err := wire.Encode(*change.Complete)
	if err != nil {
		return fmt.Errorf("registry marker: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if _, err := kv.Put(ctx, wire.RegistryCompleteKey, data); err != nil {
		return fmt.Errorf("registry marker: %w", err)
	}
	return nil
}

// atOnce does all of one kind, maxWrites at a time and each with a deadline of its own. It
// returns when none is under way any more, with the first error.
func atOnce[T any](ctx context.Context, all []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxWrites)
	for _, one := range all {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, opTimeout)
			defer cancel()
			return do(ctx, one)
		})
	}
	return group.Wait()
}

// registryPut is an entry to write.
type registryPut struct {
	key    string
	record any
}

// puts are by kind, in the order of plan.RegistryChange: one kind is written before the
// next one is begun.
func puts(change plan.RegistryChange) [][]registryPut {
	all := make([][]registryPut, 4)
	for _, e := range change.Put {
		all[0] = append(all[0], registryPut{wire.RegistryInstrumentKey(e.Instrument), e})
	}
	for _, e := range change.PutReaders {
		all[1] = append(all[1], registryPut{wire.RegistryReaderKey(e.Reader), e})
	}
	for _, e := range change.PutFeeds {
		all[2] = append(all[2], registryPut{wire.RegistryFeedKey(e.Feed), e})
	}
	for _, e := range change.PutConsumers {
		all[3] = append(all[3], registryPut{wire.RegistryConsumerKey(e.Consumer), e})
	}
	return all
}

// deletes are the keys that go, by kind.
func deletes(change plan.RegistryChange) [][]string {
	var all [][]string
	for _, of := range []struct {
		names []string
		key   func(string) string
	}{
		{change.DeleteConsumers, wire.RegistryConsumerKey}, {change.DeleteFeeds, wire.RegistryFeedKey},
		{change.DeleteReaders, wire.RegistryReaderKey}, {change.Delete, wire.RegistryInstrumentKey},
	} {
		keys := make([]string, len(of.names))
		for i, name := range of.names {
			keys[i] = of.key(name)
		}
		all = append(all, keys)
	}
	return all
}
