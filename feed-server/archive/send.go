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

	"github.com/substorm/substorm/feed-server/door"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/tree"
	"github.com/substorm/substorm/internal/wire"
)

// chunk is read from the store, and written to a client, at a time.
const chunk = 64 << 10

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// send sends a part of an object. Up to verifiedBelow all of it was compared with its
// digest before the first byte goes out; beyond, it is while it passes, and the last
// bytes are not sent where it is damaged. A part of a larger one is sent as it is.
func (a *Archive) send(v *door.Visit, t target, record wire.Record, asked part) *problem.Problem {
	if record.Size <= verifiedBelow {
		held, err := a.hot.get(v.Context(), &record)
		if err == nil {
			defer a.hot.release(held)
			begin(v, record.Size, asked)
			v.Finish(t.String(), v.Send(held.data[asked.offset:asked.offset+asked.length]))
			return nil
		}
		if !errors.Is(err, errNoRoom) {
			return v.Unreadable(t.String(), err)
		}
		if err := verify(v.Context(), a.cfg.Store, record); err != nil {
			return v.Unreadable(t.String(), err)
		}
	}
	if asked.length == record.Size {
		return a.stream(v, t, record)
	}
	return a.streamPart(v, t, record, asked)
}

// verify reads an object and compares it with its digest.
func verify(ctx context.Context, store objectstore.Store, record wire.Record) error {
	body, err := tree.Open(ctx, store, record)
	if err != nil {
		return err
	}
	defer body.Close()
	buffer := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buffer)
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, buffer[:])
	return err
}

func (a *Archive) stream(v *door.Visit, t target, record wire.Record) *problem.Problem {
	body, err := tree.Open(v.Context(), a.cfg.Store, record)
	if err != nil {
		return v.Unreadable(t.String(), err)
	}
	defer body.Close()
	return a.copy(v, t, body, record.Size, part{0, record.Size})
}

func (a *Archive) streamPart(v *door.Visit, t target, record wire.Record, asked part) *problem.Problem {
	body, _, err := a.cfg.Store.Get(v.Context(), record.Key, objectstore.Range{Offset: record.Offset + asked.offset, Length: asked.length})
	if err != nil {
		return v.Unreadable(t.String(), err)
	}
	defer body.Close()
	return a.copy(v, t, body, record.Size, asked)
}

// copy sends a part of size bytes, once the first of it was read.
func (a *Archive) copy(v *door.Visit, t target, body io.Reader, size int64, asked part) *problem.Problem {
	begun := false
	err := heldBack(func(p []byte) error {
		if !begun {
			begin(v, size, asked)
			begun = true
		}
		return v.Send(p)
	}, body, asked.length)
	if err != nil && !begun {
		return v.Unreadable(t.String(), err)
	}
	v.Finish(t.String(), err)
	return nil
}

// begin writes the head of an answer with a part of size bytes.
func begin(v *door.Visit, size int64, asked part) {
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
			return fmt.Errorf("%w: it has more than the %d bytes that it should", tree.ErrDamaged, size)
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
