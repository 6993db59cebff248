// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// Registry is what the operator publishes to a Site's programs. Entries without a revision get the registry's revision.
type Registry struct {
	Revision    int64
	Instruments []wire.InstrumentEntry
	Feeds       []wire.FeedEntry
	Consumers   []wire.ConsumerEntry
	Readers     []wire.ReaderEntry
	Mirrors     []wire.MirrorEntry
	// Guests are of other Sites: the runs of mirrors write them.
	Guests []wire.GuestEntry
	// LegalHold of the Site.
	LegalHold bool
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
	ctx, cancel := deadline(Patience)
	defer cancel()
	var kv jetstream.KeyValue
	var keys []string
	err := persist(ctx, func(ctx context.Context) (err error) {
		if kv, err = js.KeyValue(ctx, wire.RegistryBucket(site)); err != nil {
			return err
		}
		if keys, err = kv.Keys(ctx); errors.Is(err, jetstream.ErrNoKeysFound) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	gone := map[string]bool{}
	for _, key := range keys {
		gone[key] = true
	}
	put := func(key string, record any) {
		delete(gone, key)
		value, err := wire.Encode(record)
		if err == nil {
			err = persist(ctx, func(ctx context.Context) error { _, err := kv.Put(ctx, key, value); return err })
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
	for _, e := range r.Mirrors {
		revision(&e.Revision)
		put(wire.RegistryMirrorKey(e.Partner), e)
	}
	for _, e := range r.Guests {
		put(wire.RegistryGuestKey(e.Origin, e.Instrument), e)
	}
	delete(gone, wire.RegistryCompleteKey)
	for key := range gone {
		if err := persist(ctx, func(ctx context.Context) error { return kv.Delete(ctx, key) }); err != nil {
			t.Fatalf("registry entry %s: %v", key, err)
		}
	}
	put(wire.RegistryCompleteKey, wire.RegistryComplete{
		Revision: r.Revision, Count: len(r.Instruments), Feeds: len(r.Feeds), Consumers: len(r.Consumers), Readers: len(r.Readers), Mirrors: len(r.Mirrors), LegalHold: r.LegalHold,
	})
}

// persist tries until ctx ends: a node of a cluster that is gone gives no answer.
func persist(ctx context.Context, try func(context.Context) error) error {
	for {
		trying, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := try(trying)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
