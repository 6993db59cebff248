// SPDX-License-Identifier: Apache-2.0

package guests

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// listCopies learns the newest copy of each guest, once, and again after a failure.
func (k *Keeper) listCopies(ctx context.Context) error {
	if k.newest != nil {
		return nil
	}
	newest := map[string]guestCopy{}
	for info, err := range k.cfg.Store.List(ctx, wire.GuestCopySitePrefix(k.cfg.Site), "") {
		if err != nil {
			return err
		}
		guest, at, err := wire.ParseGuestCopyKey(info.Key)
		if err != nil {
			k.warnUnread(info.Key, err)
			continue
		}
		if at.Before(newest[guest].at) {
			continue
		}
		newest[guest] = guestCopy{info.Key, at}
	}
	k.newest = newest
	return nil
}

// copyChanged copies the entries that are not those of the newest copies.
func (k *Keeper) copyChanged(ctx context.Context, entries map[string]jetstream.KeyValueEntry, now time.Time) error {
	for guest, e := range entries {
		if err := k.copyEntry(ctx, guest, e, now); err != nil {
			return err
		}
	}
	return nil
}

// copyEntry stores an entry where the newest copy of its guest is of another one.
func (k *Keeper) copyEntry(ctx context.Context, guest string, e jetstream.KeyValueEntry, now time.Time) error {
	digest := wire.Digest(sha256.Sum256(e.Value()))
	old, copied := k.newest[guest]
	if copied && old.key == wire.GuestCopyKey(k.cfg.Site, guest, old.at, digest) {
		return nil
	}
	if err := checkEntry(guest, e.Value()); err != nil {
		k.warnUnread(e.Key(), err)
		return nil
	}
	if earliest := old.at.Add(time.Millisecond); copied && now.Before(earliest) { // the clock of another archivist
		now = earliest
	}
	now = now.Truncate(time.Millisecond)
	key := wire.GuestCopyKey(k.cfg.Site, guest, now, digest)
	if err := k.cfg.Lease.Check(); err != nil {
		return err
	}
	err := k.cfg.Store.Put(ctx, key, bytes.NewReader(e.Value()), int64(len(e.Value())), objectstore.PutOptions{ContentType: "application/json", CreateOnly: true})
	if err != nil && !errors.Is(err, objectstore.ErrExists) { // the key names the bytes
		return fmt.Errorf("copy %s: %w", e.Key(), err)
	}
	k.newest[guest] = guestCopy{key, now}
	k.cfg.Metrics.copied.Inc()
	return nil
}

// checkEntry says whether data is an entry of the guest that this version can read.
func checkEntry(guest string, data []byte) error {
	e, err := wire.Decode[wire.GuestEntry](data)
	if err != nil {
		return err
	}
	if name := e.Name(); name != guest {
		return fmt.Errorf("it names %s: %w", name, wire.ErrMalformed)
	}
	return nil
}
