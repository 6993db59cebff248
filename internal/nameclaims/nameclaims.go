// SPDX-License-Identifier: Apache-2.0

// Package nameclaims has what gateways, which claim names, and the archivist, which recreates lost claims, both know about the bucket of
// claims.
package nameclaims

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// IsWhole says whether all names that the archive lists have their claims in a bucket.
func IsWhole(ctx context.Context, kv jetstream.KeyValue) (bool, error) {
	_, err := kv.Get(ctx, wire.NamesListedKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s of %s: %w", wire.NamesListedKey, kv.Bucket(), err)
	}
	return true, nil
}

// IsTaken says whether a claim was not written because it is there already, or is
// another than was read.
func IsTaken(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch)
}
