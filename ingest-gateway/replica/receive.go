// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/wire"
)

// receiver takes one copy: into memory, and, what is larger than a record of the
// log may be, into parts.
type receiver struct {
	log    *Log
	spool  *spool.Spool
	buffer *memory.Buffer
	parts  []spool.Place
	digest hash.Hash
	size   int64
}

func (r *receiver) read(ctx context.Context, body io.Reader) error {
	r.buffer = r.log.cfg.Pool.NewBuffer(spool.MaxBody, func() {})
	for {
		if r.buffer.Full() {
			if err := r.part(); err != nil {
				return err
			}
		}
		space, err := r.buffer.Space(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", spool.ErrFull, err)
		}
		n, err := body.Read(space)
		r.digest.Write(space[:n])
		r.buffer.Advance(n)
		r.size += int64(n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if r.buffer.Asked() {
			if err := r.buffer.Yield(); err != nil {
				return err
			}
		}
	}
}

func (r *receiver) part() error {
	r.buffer.Seal()
	place, err := r.spool.Part(r.buffer.Reader(), r.buffer.Size())
	if err != nil {
		return err
	}
	r.parts = append(r.parts, place)
	r.buffer.Release()
	r.buffer = r.log.cfg.Pool.NewBuffer(spool.MaxBody, func() {})
	return nil
}

func (r *receiver) commit(n wire.Notice) error {
	if len(r.parts) == 0 {
		r.buffer.Seal()
		return r.spool.Object(n, r.buffer.Reader(), r.size)
	}
	if r.buffer.Size() > 0 {
		if err := r.part(); err != nil {
			return err
		}
	}
	parts := r.parts
	r.parts = nil // the spool drops them where it takes no object
	return r.spool.Object(n, nil, 0, parts...)
}

func (r *receiver) release() {
	if r.buffer != nil {
		r.buffer.Release()
	}
	if len(r.parts) > 0 {
		r.spool.Drop(r.parts)
	}
}
