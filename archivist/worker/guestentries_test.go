// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// TestGuestsEntries: a guest's registry entry that one archivist copied is restored by the next.
func TestGuestsEntries(t *testing.T) {
	l := start(t).site(t, "hub")
	key := wire.RegistryGuestKey("arctic", "allsky-1")
	data, err := wire.Encode(wire.GuestEntry{Origin: "arctic", Instrument: "allsky-1", Partner: "north",
		Access: &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessRestricted}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.kv(wire.RegistryBucket(l.site)).Put(t.Context(), key, data); err != nil {
		t.Fatal(err)
	}
	config := func(pod string) Config {
		cfg := l.config(pod)
		cfg.DescribeInterval = 20 * time.Millisecond
		return cfg
	}
	stop := l.run(config("a"))
	l.await("it is copied", func() bool {
		for _, err := range l.store.List(t.Context(), wire.GuestCopySitePrefix(l.site), "") {
			return err == nil
		}
		return false
	})
	stop()
	if err := l.kv(wire.RegistryBucket(l.site)).Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	l.run(config("b"))
	l.await("it is restored", func() bool {
		e, err := l.kv(wire.RegistryBucket(l.site)).Get(t.Context(), key)
		if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Fatal(err)
		}
		return err == nil && string(e.Value()) == string(data)
	})
}
