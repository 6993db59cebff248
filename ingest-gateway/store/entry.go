// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// storeEntry puts a spooled object under its key, and tries until ctx ends. It returns the notice,
// whose key is another if equal bytes are under its own, or if it has a name. Errors: errDuplicate,
// spool.ErrCorrupt, errUnstorable, ctx's.
func (a *Archive) storeEntry(ctx context.Context, e *spool.Entry) (wire.Notice, error) {
	n := e.Notice
	if sharesPack(e) { // its ID was made for a pack
		n.ID = n.Key
	}
	verified := false
	err := a.retry(ctx, func() (err error) {
		if !verified {
			if err = verifyEntry(e); err != nil {
				return err
			}
			verified = true
		}
		n, err = a.tryEntry(ctx, e, n)
		return err
	}, func(err error) {
		if n.Name != "" {
			a.cfg.Logger.Warn("cannot store a spooled object under its name; retrying", "instrument", n.Instrument, "name", n.Name, "error", err)
			return
		}
		a.cfg.Logger.Error("cannot store a spooled object; retrying", "key", n.Key, "error", err)
	}, spool.ErrCorrupt, errDuplicate)
	return n, err
}

// tryEntry puts a spooled object under its name, or under the first key from n's on that has no other object. It
// returns the notice with that key. Errors: errDuplicate, of the store, of names.Claim.
func (a *Archive) tryEntry(ctx context.Context, e *spool.Entry, n wire.Notice) (wire.Notice, error) {
	if n.Name != "" {
		n = e.Notice
		err := a.claimEntry(ctx, e, &n)
		if err == nil {
			err = a.putNamedEntry(ctx, e, n)
		}
		return n, err
	}
	for {
		err := a.sendEntry(ctx, e, n, true)
		if !errors.Is(err, objectstore.ErrExists) {
			return n, err
		}
		if ours, err := a.isStored(ctx, n); err != nil || ours {
			return n, err
		}
		n = withNextKey(n)
	}
}

// withNextKey returns the notice with the key of the next millisecond.
func withNextKey(n wire.Notice) wire.Notice {
	n.ReceivedAt = n.ReceivedAt.Add(time.Millisecond)
	n.Key = wire.RawKey(n.Site, n.Instrument, n.ReceivedAt, n.Digest)
	n.ID = n.Key
	return n
}

// sendEntry sends the object once, in one request or in parts, from the disk: createOnly if its key must be free.
func (a *Archive) sendEntry(ctx context.Context, e *spool.Entry, n wire.Notice, createOnly bool) error {
	opts, err := putOptions(n, createOnly)
	if err != nil {
		return err
	}
	body, err := e.Reader()
	if err != nil {
		return err
	}
	defer body.Close()
	if n.Size > PartSize {
		return a.uploadEntry(ctx, n, body, opts)
	}
	return a.request(ctx, "put", n.Size, func(ctx context.Context) error {
		return a.cfg.Objects.Put(ctx, n.Key, body, n.Size, opts)
	})
}

// uploadEntry sends the object in parts. Its digest is known, so it needs no staging.
func (a *Archive) uploadEntry(ctx context.Context, n wire.Notice, body io.ReaderAt, opts objectstore.PutOptions) (err error) {
	var upload objectstore.Upload
	err = a.request(ctx, "begin", 0, func(ctx context.Context) (err error) {
		upload, err = a.cfg.Objects.NewUpload(ctx, n.Key, opts)
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
			defer cancel()
			_ = upload.Abort(clean) // what stays is found by the sweep
		}
	}()
	for number, offset := 1, int64(0); offset < n.Size; number, offset = number+1, offset+PartSize {
		part := io.NewSectionReader(body, offset, min(PartSize, n.Size-offset))
		err = a.request(ctx, "part", part.Size(), func(ctx context.Context) error {
			return upload.Part(ctx, number, part, part.Size(), wire.Digest{})
		})
		if err != nil {
			return err
		}
	}
	return a.request(ctx, "complete", 0, upload.Complete)
}
