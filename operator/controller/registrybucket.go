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
	entries := map[string]wire.InstrumentEntry{}
	for key := range lister.Keys() {
		name, ok := wire.ParseRegistryInstrumentKey(key)
		if !ok {
			continue
		}
		value, err := kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("registry entry %s: %w", key, err)
		}
		entry, err := wire.DecodeInstrumentEntry(value.Value())
		if errors.Is(err, wire.ErrNewerFormat) {
			return fmt.Errorf("registry entry %s: %w", key, err)
		}
		entries[name] = entry // one that can't be read differs from every plan and is written anew
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.facts.setRegistry(entries, complete, l.now())
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
	for _, e := range change.Put {
		data, err := e.Encode()
		if err != nil {
			return fmt.Errorf("registry entry %s: %w", e.Instrument, err)
		}
		if _, err := kv.Put(ctx, wire.RegistryInstrumentKey(e.Instrument), data); err != nil {
			return fmt.Errorf("registry entry %s: %w", e.Instrument, err)
		}
	}
	for _, name := range change.Delete {
		if err := kv.Delete(ctx, wire.RegistryInstrumentKey(name)); err != nil {
			return fmt.Errorf("registry entry %s: %w", name, err)
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
