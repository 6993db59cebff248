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
	aheadBytes   = 6 << 20
	aheadObjects = 64
	// whole is the size in bytes up to which objects, and adjacent members of a pack with gaps of
	// at most apart, are read at once.
	whole = 4 << 20
	apart = 8 << 10
)

// reader reads objects ahead of the requests that send them, in order.
type reader struct {
	ctx     context.Context
	store   objectstore.Store
	space   *semaphore.Weighted
	objects chan *ahead
}

func newReader(ctx context.Context, store objectstore.Store) *reader {
	return &reader{ctx: ctx, store: store, space: semaphore.NewWeighted(aheadBytes), objects: make(chan *ahead, aheadObjects)}
}

// ahead is an object that is being read. An object that is too large to be read ahead is
// compared with its digest, and read again when it is sent.
type ahead struct {
	*chosen
	of    *reader
	taken int64
	done  chan struct{}
	data  []byte
	err   error
}

// readAll reads the objects to send, until the reader's context ends.
func (r *reader) readAll(all []chosen) {
	defer close(r.objects)
	for len(all) > 0 {
		n := 1
		if all[0].send {
			n = together(all)
			if !r.read(all[:n]) {
				return
			}
		}
		all = all[n:]
	}
}

// together is how many of the first ones are read at once, at least one: a request to the
// store for each small member of a pack would take longer than all of it.
func together(all []chosen) int {
	first := all[0].record
	n, end := 1, first.Offset+first.Length
	for ; first.InPack() && n < len(all) && all[n].send; n++ {
		r := all[n].record
		if r.Key != first.Key || r.Offset < end || r.Offset > end+apart || r.Offset+r.Length-first.Offset > whole {
			break
		}
		end = r.Offset + r.Length
	}
	return n
}

// read begins to read adjacent objects; false: the result is not needed any more.
func (r *reader) read(run []chosen) bool {
	objects := make([]*ahead, len(run))
	var taken int64
	for i := range run {
		o := &ahead{chosen: &run[i], of: r, taken: 1, done: make(chan struct{})}
		if o.record.Size <= whole {
			o.taken += o.record.Size
		}
		if i > 0 { // with the gap between them
			o.taken += o.record.Offset - run[i-1].record.Offset - run[i-1].record.Length
		}
		objects[i] = o
		taken += o.taken
	}
	if r.space.Acquire(r.ctx, taken) != nil {
		return false
	}
	go r.load(objects)
	for _, o := range objects {
		select {
		case r.objects <- o:
		case <-r.ctx.Done():
			return false
		}
	}
	return true
}

// drain forgets what is not sent any more, and returns when nothing more is begun.
func (r *reader) drain() {
	for range r.objects {
	}
}

// load reads adjacent objects at once. If that fails it reads each by itself, which shows which one
// is damaged.
func (r *reader) load(run []*ahead) {
	if data := r.span(run); data != nil {
		first := run[0].record.Offset
		for _, o := range run {
			from := o.record.Offset - first
			o.data = data[from : from+o.record.Length : from+o.record.Length]
			o.err = objectpath.Compare(*o.record, o.data)
			close(o.done)
		}
		return
	}
	for _, o := range run {
		o.load()
	}
}

// span returns the bytes from the first of several objects to the last; nil where they
// cannot be had.
func (r *reader) span(run []*ahead) []byte {
	if len(run) < 2 {
		return nil
	}
	first, last := run[0].record, run[len(run)-1].record
	data := make([]byte, last.Offset+last.Length-first.Offset)
	body, _, err := r.store.Get(r.ctx, first.Key, objectstore.Range{Offset: first.Offset, Length: int64(len(data))})
	if err != nil {
		return nil
	}
	defer body.Close()
	if _, err := io.ReadFull(body, data); err != nil {
		return nil
	}
	return data
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

// isDamaged reports whether an object cannot be had at all, as distinct from now.
func isDamaged(err error) bool {
	return errors.Is(err, objectpath.ErrDamaged) || errors.Is(err, objectstore.ErrNotFound)
}
