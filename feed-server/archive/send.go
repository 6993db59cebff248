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
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/tree"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// chunk is read from the store, and written to a client, at a time.
	chunk = 64 << 10
	// chunkTimeout is how long a client may take for a chunk.
	chunkTimeout = 30 * time.Second
)

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// send sends a part of an object. Up to verifiedBelow all of it was compared with its
// digest before the first byte goes out; beyond, it is while it passes, and the last
// bytes are not sent where it is damaged. A part of a larger one is sent as it is.
func (a *Archive) send(v *visit, t target, record wire.Record, asked part) *problem.Problem {
	if record.Size <= verifiedBelow {
		held, err := a.hot.get(v.Context(), &record)
		if err == nil {
			defer a.hot.release(held)
			v.begin(record.Size, asked)
			v.finish(a, t, v.write(held.data[asked.offset:asked.offset+asked.length]))
			return nil
		}
		if !errors.Is(err, errNoRoom) {
			return a.unreadable(v, t.String(), err)
		}
		if err := verify(v.Context(), a.cfg.Store, record); err != nil {
			return a.unreadable(v, t.String(), err)
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

func (a *Archive) stream(v *visit, t target, record wire.Record) *problem.Problem {
	body, err := tree.Open(v.Context(), a.cfg.Store, record)
	if err != nil {
		return a.unreadable(v, t.String(), err)
	}
	defer body.Close()
	return a.copy(v, t, body, record.Size, part{0, record.Size})
}

func (a *Archive) streamPart(v *visit, t target, record wire.Record, asked part) *problem.Problem {
	body, _, err := a.cfg.Store.Get(v.Context(), record.Key, objectstore.Range{Offset: record.Offset + asked.offset, Length: asked.length})
	if err != nil {
		return a.unreadable(v, t.String(), err)
	}
	defer body.Close()
	return a.copy(v, t, body, record.Size, asked)
}

// copy sends a part of size bytes, once the first of it was read.
func (a *Archive) copy(v *visit, t target, body io.Reader, size int64, asked part) *problem.Problem {
	begun := false
	err := heldBack(func(p []byte) error {
		if !begun {
			v.begin(size, asked)
			begun = true
		}
		return v.write(p)
	}, body, asked.length)
	if err != nil && !begun {
		return a.unreadable(v, t.String(), err)
	}
	v.finish(a, t, err)
	return nil
}

// begin writes the head of an answer with a part of size bytes.
func (v *visit) begin(size int64, asked part) {
	h := v.w.Header()
	h.Set("Content-Length", strconv.FormatInt(asked.length, 10))
	if asked.length == size {
		v.w.WriteHeader(http.StatusOK)
		return
	}
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", asked.offset, asked.offset+asked.length-1, size))
	v.w.WriteHeader(http.StatusPartialContent)
}

// errClient: the client went away, or takes nothing.
var errClient = errors.New("the client does not take what it asked for")

// write gives a client some bytes, and time for them.
func (v *visit) write(p []byte) error {
	control := http.NewResponseController(v.w)
	for len(p) > 0 {
		n := min(len(p), 4*chunk)
		_ = control.SetWriteDeadline(time.Now().Add(chunkTimeout * time.Duration(n/chunk+1)))
		if _, err := v.w.Write(p[:n]); err != nil {
			return fmt.Errorf("%w: %w", errClient, err)
		}
		p = p[n:]
	}
	return nil
}

// finish ends an answer whose head is written. One that is not whole is cut off, so
// that the client sees that it is not.
func (v *visit) finish(a *Archive, t target, err error) {
	control := http.NewResponseController(v.w)
	if err == nil {
		if err = control.Flush(); err == nil {
			_ = control.SetWriteDeadline(time.Time{}) // the connection may be used again, and by others
			return
		}
		err = fmt.Errorf("%w: %w", errClient, err)
	}
	if !errors.Is(err, errClient) && v.Context().Err() == nil {
		if errors.Is(err, tree.ErrDamaged) {
			a.metrics.damaged.Inc()
		}
		a.cfg.Logger.Warn("an answer is cut off: the archive cannot be read", "path", t.String(), "error", err)
	}
	panic(http.ErrAbortHandler)
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
