// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// aheadRecords are opened before their turn comes: the store takes longer to answer
	// than a segment of ten minutes takes to be decoded.
	aheadRecords = 8
	// aheadPart of a request's memory holds what was read of them.
	aheadPart = 4
)

// ahead reads the records that come next while another is decoded. It belongs to one
// goroutine; what it starts ends with close.
type ahead struct {
	archive Archive
	// known reports whether nothing of a record will be read.
	known func(*wire.Record) bool
	// records are how many may be read at a time: at first the one that is wanted and
	// another, which may hold the first sample too; nothing else is to delay that.
	records int
	// free is how many bytes more may be held.
	free    int64
	fetches map[string]*fetch
	running sync.WaitGroup
	cancel  context.CancelFunc
	ctx     context.Context
}

// bodies are used again: a request for a day reads more than a hundred.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// fetch is a record that is read, or was.
type fetch struct {
	done chan struct{}
	size int64
	body *bytes.Buffer
	data []byte
	// err is the error of opening the object, or the one behind data.
	err error
}

func newAhead(archive Archive, known func(*wire.Record) bool, memory int) *ahead {
	return &ahead{archive: archive, known: known, records: 2, free: int64(memory), fetches: map[string]*fetch{}}
}

// begin starts to read the next candidates, as far as there is space.
func (a *ahead) begin(ctx context.Context, next []candidate) {
	if a.ctx == nil {
		a.ctx, a.cancel = context.WithCancel(ctx)
	}
	defer func() { a.records = min(2*a.records, aheadRecords) }()
	for i := range next[:min(len(next), a.records)] {
		r := next[i].record
		if a.fetches[r.ID] != nil || r.Size <= 0 || a.known(&r) {
			continue
		}
		if len(a.fetches) >= a.records || r.Size > a.free {
			return
		}
		a.free -= r.Size
		f := &fetch{done: make(chan struct{}), size: r.Size}
		a.fetches[r.ID] = f
		a.running.Go(func() {
			defer close(f.done)
			f.read(a.ctx, a.archive, r)
		})
	}
}

func (f *fetch) read(ctx context.Context, archive Archive, r wire.Record) {
	body, err := archive.Open(ctx, r)
	if err != nil {
		f.err = err
		return
	}
	defer body.Close()
	f.body = bodies.Get().(*bytes.Buffer)
	f.body.Grow(int(r.Size) + bytes.MinRead)
	_, f.err = f.body.ReadFrom(io.LimitReader(body, r.Size+1)) // behind the last byte it is compared with its digest
	if f.data = f.body.Bytes(); f.err == nil && int64(len(f.data)) > r.Size {
		f.data, f.err = f.data[:r.Size], objectpath.TooLong(r)
	}
}

// open opens a record, from the bytes read ahead or from the archive. Errors: as Archive.Open;
// errors of its bytes come as they are read.
func (a *ahead) open(ctx context.Context, r *wire.Record) (io.ReadCloser, error) {
	f := a.fetches[r.ID]
	if f == nil {
		return a.archive.Open(ctx, *r)
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if f.data == nil && f.err != nil {
		a.give(r.ID)
		return nil, f.err
	}
	return &fetched{Reader: *bytes.NewReader(f.data), err: f.err, close: func() { a.give(r.ID) }}, nil
}

// give gives the space of a record that was read back.
func (a *ahead) give(id string) {
	f := a.fetches[id]
	a.free += f.size
	delete(a.fetches, id)
	if f.body != nil {
		f.body.Reset()
		bodies.Put(f.body)
	}
}

// close ends what is still being read.
func (a *ahead) close() {
	if a.cancel != nil {
		a.cancel()
	}
	a.running.Wait()
	for id := range a.fetches { // no caller wanted them any more
		a.give(id)
	}
}

// fetched is the bytes of a record, and the error behind them.
type fetched struct {
	bytes.Reader
	err   error
	close func()
}

// Read implements io.Reader.
func (f *fetched) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if errors.Is(err, io.EOF) && f.err != nil {
		err = f.err
	}
	return n, err
}

// WriteTo would pass the error by.
func (f *fetched) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{f})
}

// Close implements io.Closer.
func (f *fetched) Close() error {
	f.close()
	return nil
}
