// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// Record reads a record of a bucket, and its revision: 0 if there is none. Errors: those of wire.Decode, and JetStream's.
func Record[T any](ctx context.Context, kv jetstream.KeyValue, key string) (record T, revision uint64, err error) {
	e, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return record, 0, nil
	}
	if err == nil {
		record, err = wire.Decode[T](e.Value())
	}
	if err != nil {
		return record, 0, fmt.Errorf("%s of bucket %s: %w", key, kv.Bucket(), err)
	}
	return record, e.Revision(), nil
}
