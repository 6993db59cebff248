// SPDX-License-Identifier: Apache-2.0

package guests

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// maxSize bounds a copy that is read, in bytes: messages of NATS are no larger.
const maxSize = 1 << 20

// restoreMissing writes the newest copies of all guests that have no entry, and logs how many these were.
func (k *Keeper) restoreMissing(ctx context.Context, kv jetstream.KeyValue, entries map[string]jetstream.KeyValueEntry) error {
	restored := 0
	defer func() {
		if restored > 0 {
			k.cfg.Metrics.restored.Add(float64(restored))
			k.cfg.Log.Warn("the registry had lost entries of guests, which were restored from their copies in the bucket", "restored", restored)
		}
	}()
	for guest, newest := range k.newest {
		if entries[guest] != nil {
			continue
		}
		written, err := k.restore(ctx, kv, guest, newest)
		if err != nil {
			return err
		}
		if written {
			restored++
		}
	}
	return nil
}

// restore writes a copy where the registry has no entry of its guest: what a run wrote meanwhile is newer, and stays. It says
// whether it wrote one.
func (k *Keeper) restore(ctx context.Context, kv jetstream.KeyValue, guest string, c guestCopy) (written bool, err error) {
	data, err := k.read(ctx, c.key)
	if err != nil {
		return false, err
	}
	if err := k.checkCopy(guest, c, data); err != nil {
		k.warnUnread(c.key, err)
		return false, nil
	}
	if err := k.cfg.Lease.Check(); err != nil {
		return false, err
	}
	origin, instrument, _ := wire.ParseGuestName(guest)
	key := wire.RegistryGuestKey(origin, instrument)
	_, err = kv.Create(ctx, key, data)
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("restore %s of bucket %s: %w", key, kv.Bucket(), err)
	}
	return true, nil
}

// read returns the beginning of a copy: all of one that is not too large.
func (k *Keeper) read(ctx context.Context, key string) ([]byte, error) {
	body, _, err := k.cfg.Store.Get(ctx, key, objectstore.All)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxSize))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return data, nil
}

// checkCopy says whether data is what was copied, and an entry of the guest that this version can read.
func (k *Keeper) checkCopy(guest string, c guestCopy, data []byte) error {
	if wire.GuestCopyKey(k.cfg.Site, guest, c.at, sha256.Sum256(data)) != c.key {
		return fmt.Errorf("its bytes do not match the digest in its key: %w", wire.ErrMalformed)
	}
	return checkEntry(guest, data)
}
