// SPDX-License-Identifier: Apache-2.0

package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/retry"
)

// copyTo reads all pieces into an object.
func (u *upload) copyTo(ctx context.Context, o *store.Object) error {
	for _, p := range u.pieces {
		if err := u.copyPiece(ctx, p, o); err != nil {
			return err
		}
	}
	if o.Size() != u.info.Length {
		return fmt.Errorf("upload %s: its pieces have %d bytes, and should have %d", u.id, o.Size(), u.info.Length)
	}
	return nil
}

// copyTries is how often a piece is read on where the store failed, after pauses
// that double from copyPause: some 30 seconds.
const (
	copyTries = 8
	copyPause = 250 * time.Millisecond
)

// copyPiece reads a piece into the object. It takes no place among the requests to
// the store: the object's own parts need one meanwhile.
func (u *upload) copyPiece(ctx context.Context, p run, o *store.Object) error {
	for try, pause := 0, copyPause; ; try, pause = try+1, 2*pause {
		err := u.readPiece(ctx, p, o)
		if err == nil || !errors.Is(err, objectstore.ErrUnavailable) || try == copyTries {
			return err
		}
		if !retry.Sleep(ctx, pause) {
			return err
		}
	}
}

// readPiece reads what the object does not have yet of a piece.
func (u *upload) readPiece(ctx context.Context, p run, o *store.Object) error {
	end := p.offset + p.size
	if o.Size() == end {
		return nil
	}
	body, _, err := u.server.cfg.Objects.Get(ctx, p.key, objectstore.Range{Offset: o.Size() - p.offset, Length: end - o.Size()})
	if err != nil {
		return err
	}
	defer body.Close()
	for o.Size() < end {
		space, err := o.Space(ctx)
		if err != nil {
			return err
		}
		n, err := io.ReadFull(body, space[:min(int64(len(space)), end-o.Size())])
		o.Advance(space, n)
		if err != nil {
			return unavailable(err)
		}
		if o.Asked() {
			if err := o.Yield(); err != nil {
				return err
			}
		}
	}
	return nil
}

// unavailable is an error of reading from the store, which may be tried again.
func unavailable(err error) error {
	if errors.Is(err, objectstore.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", objectstore.ErrUnavailable, err)
}
