// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/substorm/substorm/internal/tree"
	"github.com/substorm/substorm/internal/wire"
)

// Open opens an object's bytes for other doors, out of memory where it lies there, and
// otherwise holds it for whoever asks next. What is held has them as Bytes too, until it
// is closed. Errors: as tree.Open, also where the bytes are not those that were received.
func (a *Archive) Open(ctx context.Context, record wire.Record) (io.ReadCloser, error) {
	if record.Size > verifiedBelow {
		return tree.Open(ctx, a.cfg.Store, record)
	}
	held, err := a.hot.get(ctx, &record)
	if errors.Is(err, errNoRoom) {
		return tree.Open(ctx, a.cfg.Store, record)
	}
	if err != nil {
		return nil, err
	}
	return &opened{bytes.NewReader(held.data), held, a.hot}, nil
}

// opened is an object in memory, which is being read.
type opened struct {
	*bytes.Reader
	held *held
	hot  *hot
}

// Bytes are all of it; they must not be changed.
func (o *opened) Bytes() []byte { return o.held.data }

// Close implements io.Closer. It must be called once.
func (o *opened) Close() error {
	o.hot.release(o.held)
	return nil
}
