// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
)

// Names tells who has a name, from the Site's bucket of them.
func Names(js jetstream.JetStream, site string) objectpath.Names {
	return func(ctx context.Context, instrument, name string) (wire.NameClaim, bool, error) {
		kv, err := js.KeyValue(ctx, wire.NamesBucket(site))
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			return wire.NameClaim{}, false, nil
		}
		if err != nil {
			return wire.NameClaim{}, false, fmt.Errorf("names of site %s: %w", site, err)
		}
		e, err := kv.Get(ctx, wire.NameKey(instrument, name))
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return wire.NameClaim{}, false, nil
		}
		if err != nil {
			return wire.NameClaim{}, false, fmt.Errorf("names of site %s: %w", site, err)
		}
		claim, err := wire.Decode[wire.NameClaim](e.Value())
		return claim, err == nil, err
	}
}
