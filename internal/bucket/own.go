// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Other returns the digest of what lies under a key if that is not the bytes of an object: a name that was given up, and whose claim was
// lost, may have been taken by other bytes, which have their own receipt. It is the zero value if nothing lies there, or the object's
// bytes do. Errors: those of objectstore.
func Other(ctx context.Context, store objectstore.Store, key string, object wire.Digest) (wire.Digest, error) {
	if _, raw := wire.ReceivedAtOfKey(key); raw && strings.HasSuffix(key, "-"+object.String()[:16]) {
		return wire.Digest{}, nil // the key itself says whose bytes they are
	}
	info, err := store.Head(ctx, key)
	var digest wire.Digest
	if err == nil {
		n, unreadable := wire.NoticeFromMetadata(key, info.Metadata)
		if digest = n.Digest; unreadable != nil || n.Size != info.Size {
			digest, err = digestOf(ctx, store, key) // they themselves say it
		}
	}
	if errors.Is(err, objectstore.ErrNotFound) {
		return wire.Digest{}, nil
	}
	if err != nil || digest == object {
		return wire.Digest{}, err
	}
	return digest, nil
}

func digestOf(ctx context.Context, store objectstore.Store, key string) (wire.Digest, error) {
	body, _, err := store.Get(ctx, key, objectstore.All)
	if err != nil {
		return wire.Digest{}, err
	}
	defer body.Close()
	h := sha256.New()
	if _, err := io.Copy(h, body); err != nil {
		return wire.Digest{}, err
	}
	return wire.Digest(h.Sum(nil)), nil
}
