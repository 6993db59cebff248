// SPDX-License-Identifier: Apache-2.0

// Package damage asks what is known of the damage of objects before another object, which
// is equal to one of them, is withdrawn or deleted.
package damage

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Sound says whether nobody reported damage of an object, or its bytes are right all the same. It
// reads only what was reported; what cannot be read then is not sound. Errors: JetStream's.
func Sound(ctx context.Context, js jetstream.JetStream, store objectstore.Store, site, instrument string, r wire.Record) (bool, error) {
	status := wire.StatusBucket(site)
	_, _, err := stream.Newest(ctx, js, status, wire.DamageKey(instrument, r.ID))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("bucket %s: %w", status, err)
	}
	err = bucket.Verify(ctx, store, r, nil)
	return err == nil, ctx.Err()
}
