// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
)

const (
	// aheadBytes of objects are read before they are sent, and aheadObjects at most.
	aheadBytes   = 8 << 20
	aheadObjects = 16
	// whole is the size in bytes up to which an object is read at once.
	whole = aheadBytes / 2
)

// reader reads objects ahead of those who send them, in order.
type reader struct {
	ctx     context.Context
	store   objectstore.Store
	space   *semaphore.Weighted
	objects chan *ahead
}

func newReader(ctx context.Context, store objectstore.Store) *reader {
	return &reader{ctx: ctx, store: store, space: semaphore.NewWeighted(aheadBytes), objects: make(chan *ahead, aheadObjects)}
}

// ahead is an object that is being read. What is too large for that is compared with its
// digest, and read again when it is sent.
type ahead struct {
	*chosen
	of    *reader
	taken int64
	done  chan struct{}
	data  []byte
	err   error
}

// readAll reads those that are to be sent, until the reader's context ends.
func (r *reader) readAll(all []chosen) {
	defer close(r.objects)
	for i := range all {
		if all[i].send && !r.read(&all[i]) {
			return
		}
	}
}

// read begins to read an object; false: there is no sense in it any more.
func (r *reader) read(c *chosen) bool {
	o := &ahead{chosen: c, of: r, taken: 1, done: make(chan struct{})}
	if c.record.Size <= whole {
		o.taken += c.record.Size
	}
	if r.space.Acquire(r.ctx, o.taken) != nil {
		return false
	}
	go o.load()
	select {
	case r.objects <- o:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// drain forgets what is not sent any more, and returns when nothing more is begun.
func (r *reader) drain() {
	for range r.objects {
	}
}

func (o *ahead) load() {
	defer close(o.done)
	body, err := objectpath.Open(o.of.ctx, o.of.store, *o.record)
	if err != nil {
		o.err = err
		return
	}
	defer body.Close()
	if o.record.Size > whole {
		_, o.err = io.Copy(io.Discard, body)
		return
	}
	data := make([]byte, o.record.Size+1)
	switch n, err := io.ReadFull(body, data); {
	case errors.Is(err, objectpath.ErrDamaged):
		o.err = err
	case err == nil:
		o.err = objectpath.TooLong(*o.record)
	case err == io.EOF && o.record.Size == 0, err == io.ErrUnexpectedEOF && int64(n) == o.record.Size: // compared at the end
		o.data = data[:n]
	default:
		o.err = err
	}
}

// wait returns the object's bytes, nil of one that is to be streamed.
func (o *ahead) wait(ctx context.Context) ([]byte, error) {
	select {
	case <-o.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if o.err != nil {
		o.release()
	}
	return o.data, o.err
}

// stream writes an object that was compared with its digest before.
func (o *ahead) stream(ctx context.Context, out io.Writer) error {
	body, err := objectpath.Open(ctx, o.of.store, *o.record)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(out, body)
	return err
}

// release gives back the space.
func (o *ahead) release() {
	o.data = nil
	o.of.space.Release(o.taken)
}

// isDamaged says whether an object cannot be had at all, as distinct from now.
func isDamaged(err error) bool {
	return errors.Is(err, objectpath.ErrDamaged) || errors.Is(err, objectstore.ErrNotFound)
}
