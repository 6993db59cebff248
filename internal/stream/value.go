// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// Load reads a record from a key-value bucket; false if there is none. Errors name bucket and key.
func Load[T any](ctx context.Context, kv jetstream.KeyValue, key string) (record T, found bool, err error) {
	e, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return record, false, nil
	}
	if err == nil {
		record, err = wire.Decode[T](e.Value())
	}
	if err != nil {
		return record, false, fmt.Errorf("%s of bucket %s: %w", key, kv.Bucket(), err)
	}
	return record, true, nil
}

// Save writes a record into a key-value bucket, whatever is there. Errors name bucket and key.
func Save[T any](ctx context.Context, kv jetstream.KeyValue, key string, record T) error {
	data, err := wire.Encode(record)
	if err == nil {
		_, err = kv.Put(ctx, key, data)
	}
	if err != nil {
		return fmt.Errorf("%s of bucket %s: %w", key, kv.Bucket(), err)
	}
	return nil
}
