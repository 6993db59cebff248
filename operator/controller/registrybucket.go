// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan"
)

// readRegistry reads all that stands in the registry.
func (l *link) readRegistry(ctx context.Context, kv jetstream.KeyValue) error {
	complete, err := readComplete(ctx, kv)
	if err != nil {
		return err
	}
	lister, err := kv.ListKeys(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lister.Stop() }()
	state := emptyRegistry()
	for key := range lister.Keys() {
		if err := readEntry(ctx, kv, key, state); err != nil {
			return fmt.Errorf("registry entry %s: %w", key, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.facts.setRegistry(state, complete, l.now())
	return nil
}

func emptyRegistry() plan.RegistryState {
	return plan.RegistryState{Entries: map[string]wire.InstrumentEntry{}, Feeds: map[string]wire.FeedEntry{},
		Consumers: map[string]wire.ConsumerEntry{}, Readers: map[string]wire.ReaderEntry{}}
}

// readEntry reads one entry of whichever kind.
func readEntry(ctx context.Context, kv jetstream.KeyValue, key string, into plan.RegistryState) error {
	if name, ok := wire.ParseRegistryInstrumentKey(key); ok {
		return decodeEntry(ctx, kv, key, name, into.Entries, wire.DecodeInstrumentEntry)
	}
	if name, ok := wire.ParseRegistryFeedKey(key); ok {
		return decodeEntry(ctx, kv, key, name, into.Feeds, wire.DecodeFeedEntry)
	}
	if name, ok := wire.ParseRegistryConsumerKey(key); ok {
		return decodeEntry(ctx, kv, key, name, into.Consumers, wire.DecodeConsumerEntry)
	}
	if name, ok := wire.ParseRegistryReaderKey(key); ok {
		return decodeEntry(ctx, kv, key, name, into.Readers, wire.DecodeReaderEntry)
	}
	return nil
}

// decodeEntry: an entry that can't be read differs from every plan and is written anew.
func decodeEntry[E any](ctx context.Context, kv jetstream.KeyValue, key, name string, into map[string]E, decode func([]byte) (E, error)) error {
	value, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	entry, err := decode(value.Value())
	if errors.Is(err, wire.ErrNewerFormat) {
		return err
	}
	into[name] = entry
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
	complete, err := wire.DecodeRegistryComplete(value.Value())
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
// stands is read anew before the next change.
func (l *link) write(ctx context.Context, change plan.RegistryChange) error {
	l.mu.Lock()
	kv := l.registry
	l.mu.Unlock()
	if kv == nil {
		return errNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if err := putRegistry(ctx, kv, change); err != nil {
		return errors.Join(err, l.readRegistry(ctx, kv))
	}
	l.facts.changeRegistry(change, l.now())
	return nil
}

// putRegistry writes entries, removes what is gone, and then says that the
// snapshot is complete.
func putRegistry(ctx context.Context, kv jetstream.KeyValue, change plan.RegistryChange) error {
	for _, put := range puts(change) {
		data, err := put.encode()
		if err == nil {
			_, err = kv.Put(ctx, put.key, data)
		}
		if err != nil {
			return fmt.Errorf("registry entry %s: %w", put.key, err)
		}
	}
	for _, key := range deletes(change) {
		if err := kv.Delete(ctx, key); err != nil {
			return fmt.Errorf("registry entry %s: %w", key, err)
		}
	}
	data, err := change.Complete.Encode()
	if err != nil {
		return fmt.Errorf("registry marker: %w", err)
	}
	if _, err := kv.Put(ctx, wire.RegistryCompleteKey, data); err != nil {
		return fmt.Errorf("registry marker: %w", err)
	}
	return nil
}

// registryPut is an entry to write.
type registryPut struct {
	key    string
	encode func() ([]byte, error)
}

// puts are in the order of plan.RegistryChange.
func puts(change plan.RegistryChange) []registryPut {
	var all []registryPut
	for _, e := range change.Put {
		all = append(all, registryPut{wire.RegistryInstrumentKey(e.Instrument), e.Encode})
	}
	for _, e := range change.PutReaders {
		all = append(all, registryPut{wire.RegistryReaderKey(e.Reader), e.Encode})
	}
	for _, e := range change.PutFeeds {
		all = append(all, registryPut{wire.RegistryFeedKey(e.Feed), e.Encode})
	}
	for _, e := range change.PutConsumers {
		all = append(all, registryPut{wire.RegistryConsumerKey(e.Consumer), e.Encode})
	}
	return all
}

func deletes(change plan.RegistryChange) []string {
	var all []string
	for _, of := range []struct {
		names []string
		key   func(string) string
	}{
		{change.DeleteConsumers, wire.RegistryConsumerKey}, {change.DeleteFeeds, wire.RegistryFeedKey},
		{change.DeleteReaders, wire.RegistryReaderKey}, {change.Delete, wire.RegistryInstrumentKey},
	} {
		for _, name := range of.names {
			all = append(all, of.key(name))
		}
	}
	return all
}
