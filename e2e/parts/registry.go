// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// Registry is what the operator tells a Site's programs. Entries without a
// revision get that of the registry.
type Registry struct {
	Revision    int64
	Instruments []wire.InstrumentEntry
	Feeds       []wire.FeedEntry
	Consumers   []wire.ConsumerEntry
	Readers     []wire.ReaderEntry
}

// Declare writes a Site's registry as the operator does: entries, what is gone,
// then the marker.
func (n *NATSServer) Declare(t testing.TB, site string, r Registry) {
	t.Helper()
	r.declare(t, n.JetStream(t), site)
}

// Declare is as NATSServer.Declare.
func (c *NATSServers) Declare(t testing.TB, site string, r Registry) {
	t.Helper()
	r.declare(t, c.JetStream(t), site)
}

func (r Registry) declare(t testing.TB, js jetstream.JetStream, site string) {
	t.Helper()
	ctx, cancel := deadline(startTimeout)
	defer cancel()
	kv := must(js.KeyValue(ctx, wire.RegistryBucket(site)))(t)
	gone := map[string]bool{}
	keys, err := kv.Keys(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
		t.Fatal(err)
	}
	for _, key := range keys {
		gone[key] = true
	}
	put := func(key string, record interface{ Encode() ([]byte, error) }) {
		delete(gone, key)
		value, err := record.Encode()
		if err == nil {
			_, err = kv.Put(ctx, key, value)
		}
		if err != nil {
			t.Fatalf("registry entry %s: %v", key, err)
		}
	}
	revision := func(of *int64) {
		if *of == 0 {
			*of = r.Revision
		}
	}
	for _, e := range r.Instruments {
		revision(&e.Revision)
		put(wire.RegistryInstrumentKey(e.Instrument), e)
	}
	for _, e := range r.Feeds {
		revision(&e.Revision)
		put(wire.RegistryFeedKey(e.Feed), e)
	}
	for _, e := range r.Consumers {
		revision(&e.Revision)
		put(wire.RegistryConsumerKey(e.Consumer), e)
	}
	for _, e := range r.Readers {
		revision(&e.Revision)
		put(wire.RegistryReaderKey(e.Reader), e)
	}
	delete(gone, wire.RegistryCompleteKey)
	for key := range gone {
		if err := kv.Delete(ctx, key); err != nil {
			t.Fatalf("registry entry %s: %v", key, err)
		}
	}
	put(wire.RegistryCompleteKey, wire.RegistryComplete{
		Revision: r.Revision, Count: len(r.Instruments), Feeds: len(r.Feeds), Consumers: len(r.Consumers), Readers: len(r.Readers),
	})
}
