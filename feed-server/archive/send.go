// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// chunk is read from the store, and written to a client, at a time.
const chunk = 64 << 10

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// send sends a part of an object. Up to verifiedBelow all of it was compared with its
// digest before the first byte goes out; beyond, it is while it passes, and the last
// bytes are not sent where it is damaged. A part of a larger one is sent as it is. Where
// memory is short, that is without the coding.
func (a *Archive) send(v *endpoint.Request, t target, record wire.Record, asked part, coding string) *problem.Problem {
	if record.Size <= verifiedBelow {
		held, err := a.getVerified(v.Context(), &record)
		if err != nil {
			return v.Unreadable(t.String(), err)
		}
		if held != nil {
			defer a.hot.release(held)
			if coding != "" && a.sendCoded(v, t, held.data, coding) {
				return nil
			}
			begin(v, record.Size, asked)
			v.Finish(t.String(), v.Send(asked.of(held.data)))
			return nil
		}
	}
	return deliver(v, t, record.Size, asked, func(write func([]byte) error) error {
		return a.pass(v.Context(), write, &record, asked)
	})
}

// getVerified returns an object that was compared with its digest: to be released, or nil
// where no memory is left for it.
func (a *Archive) getVerified(ctx context.Context, record *wire.Record) (*held, error) {
	held, err := a.hot.get(ctx, record)
	if errors.Is(err, errNoSpace) {
		return nil, verify(ctx, a.cfg.Store, *record)
	}
	return held, err
}

// verify reads an object and compares it with its digest.
func verify(ctx context.Context, store objectstore.Store, record wire.Record) error {
	body, err := objectpath.Open(ctx, store, record)
	if err != nil {
		return err
	}
	defer body.Close()
	buffer := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buffer)
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, buffer[:])
	return err
}

// pass writes a part of an object as it comes from the store. All of one is compared
// with its digest while it does.
func (a *Archive) pass(ctx context.Context, write func([]byte) error, record *wire.Record, asked part) error {
	body, err := a.openPart(ctx, record, asked)
	if err != nil {
		return err
	}
	defer body.Close()
	return heldBack(write, body, asked.length)
}

func (a *Archive) openPart(ctx context.Context, record *wire.Record, asked part) (io.ReadCloser, error) {
	if asked.length == record.Size {
		return objectpath.Open(ctx, a.cfg.Store, *record)
	}
	return objectpath.OpenPart(ctx, a.cfg.Store, *record, asked.offset, asked.length)
}

// deliver sends a part of size bytes as fill writes it. Until there are any, what is
// wrong with them is a problem.
func deliver(v *endpoint.Request, t target, size int64, asked part, fill func(write func([]byte) error) error) *problem.Problem {
	begun := false
	err := fill(func(p []byte) error {
		if len(p) == 0 {
			return nil
		}
		if !begun {
			begin(v, size, asked)
			begun = true
		}
		return v.Send(p)
	})
	if !begun {
		if err != nil {
			return v.Unreadable(t.String(), err)
		}
		begin(v, size, asked)
	}
	v.Finish(t.String(), err)
	return nil
}

// begin writes the head of an answer with a part of size bytes.
func begin(v *endpoint.Request, size int64, asked part) {
	h := v.W.Header()
	h.Set("Content-Length", strconv.FormatInt(asked.length, 10))
	if asked.length == size {
		v.W.WriteHeader(http.StatusOK)
		return
	}
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", asked.offset, asked.offset+asked.length-1, size))
	v.W.WriteHeader(http.StatusPartialContent)
}

// heldBack copies size bytes, and the last of them only when the source has ended
// without an error: what does not belong to them is never sent as if it did.
func heldBack(write func([]byte) error, source io.Reader, size int64) error {
	one, other := chunks.Get().(*[chunk]byte), chunks.Get().(*[chunk]byte)
	defer chunks.Put(one)
	defer chunks.Put(other)
	waits, next := one[:0], other
	for left := size; ; {
		n, err := io.ReadFull(source, next[:])
		ended := err == io.EOF || err == io.ErrUnexpectedEOF // io.ReadFull's own, and none that is wrapped
		if err != nil && !ended {
			return err
		}
		switch left -= int64(n); {
		case left < 0:
			return fmt.Errorf("%w: it is longer than the expected %d bytes", objectpath.ErrDamaged, size)
		case ended && left > 0:
			return fmt.Errorf("%d bytes are missing at its end: %w", left, io.ErrUnexpectedEOF)
		}
		if err := write(waits); err != nil {
			return err
		}
		if ended {
			return write(next[:n])
		}
		waits, next = next[:n], (*[chunk]byte)(waits[:chunk])
	}
}
