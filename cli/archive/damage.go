// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/damage"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// KnownDamage is what the Site knows of damage to the chosen instruments and days.
type KnownDamage struct{ damage.Known }

// readDamage reads what a Site knows of damage to the chosen instruments and days.
func readDamage(ctx context.Context, js jetstream.JetStream, site string, s *selection) (*KnownDamage, error) {
	within, err := s.days()
	if err != nil {
		return nil, err
	}
	known := &KnownDamage{}
	err = backend.Entries(ctx, js, wire.StatusBucket(site), wire.DamageKeys, func(e backend.Entry) error {
		d, err := wire.Decode[wire.Damage](e.Data)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", e.Key, wire.StatusBucket(site), err)
		}
		if s.holdsInstrument(d.Instrument) && within.hold(d.Day) {
			known.Add(d)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	status, err := js.KeyValue(ctx, wire.StatusBucket(site))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.StatusBucket(site), err)
	}
	looked, _, err := stream.Record[wire.ScrubStatus](ctx, status, wire.ScrubStatusKey)
	if err != nil {
		return nil, err
	}
	known.LastPass, known.Pass = looked.LastPass, looked.Pass
	return known, nil
}
