// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/substorm/substorm/ingest-gateway/archive/spool"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// storeEntry puts a spooled object under its key, and tries until ctx ends. It
// returns the notice, whose key is another where equal bytes lie under its own.
// Errors: spool.ErrCorrupt, errUnstorable, ctx's.
func (a *Archive) storeEntry(ctx context.Context, e *spool.Entry) (wire.Notice, error) {
	n := e.Notice
	if n.Name != "" {
		return a.storeNamedEntry(ctx, e)
	}
	if sharesPack(e) { // its ID was made for a pack
		n.ID = n.Key
	}
	verified := false
	tried := a.newTries()
	for said := false; ; {
		var err error
		if !verified {
			err = verifyEntry(e)
			verified = err == nil
		}
		if err == nil {
			err = a.putEntry(ctx, e, n)
		}
		if errors.Is(err, objectstore.ErrExists) {
			var ours bool
			if ours, err = a.isStored(ctx, n); err == nil && !ours {
				n.ReceivedAt = n.ReceivedAt.Add(time.Millisecond)
				n.Key = wire.RawKey(n.Site, n.Instrument, n.ReceivedAt, n.Digest)
				n.ID = n.Key
				continue
			}
		}
		if err != nil {
			err = tried.judge(ctx, err)
		}
		switch {
		case err == nil || errors.Is(err, spool.ErrCorrupt) || errors.Is(err, errUnstorable):
			return n, err
		case ctx.Err() != nil:
			return n, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		if !said && !isAway(err) {
			a.cfg.Logger.Error("a spooled object cannot be stored: it is tried again", "key", n.Key, "error", err)
			said = true
		}
		pause(ctx, homePause)
	}
}

// putEntry sends the object once, where nothing lies under its key.
func (a *Archive) putEntry(ctx context.Context, e *spool.Entry, n wire.Notice) error {
	return a.sendEntry(ctx, e, n, true)
}

// sendEntry sends the object once, in one request or in parts, from the disk.
func (a *Archive) sendEntry(ctx context.Context, e *spool.Entry, n wire.Notice, createOnly bool) error {
	opts, err := putOptions(n)
	if err != nil {
		return err
	}
	opts.CreateOnly = createOnly
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
