// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/damage"
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
	e, err := status.Get(ctx, wire.ScrubStatusKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return known, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.StatusBucket(site), err)
	}
	looked, err := wire.Decode[wire.ScrubStatus](e.Value())
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", wire.ScrubStatusKey, wire.StatusBucket(site), err)
	}
	known.LastPass, known.Pass = looked.LastPass, looked.Pass
	return known, nil
}

// print says what is known of damage, and when somebody last looked.
func (k *KnownDamage) print(w io.Writer) error {
	_, err := fmt.Fprintln(w, k)
	return err
}
