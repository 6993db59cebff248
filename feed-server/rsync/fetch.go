// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// whole is the size up to which a file is read before it is sent; a larger one is read
	// while it is.
	whole = 512 << 10
	// batchBytes and batchFiles bound what is fetched together. One batch is fetched while
	// the one before is sent.
	batchBytes = 1 << 20
	batchFiles = 1024
	// gap is what is read between two members of a pack and not sent, rather than to ask
	// twice: a request takes about as long. Together that is at most a batch's bytes.
	gap = 128 << 10
	// fetches are how many parts of a batch are read at a time.
	fetches = 4
)

// fetched is a file that is read, or will be.
type fetched struct {
	origin origin
	path   string
	// record is nil of a file that is gone.
	record *wire.Record
	// done is closed when data or err is set. It is nil of a file that is read while it is
	// sent.
	done chan struct{}
	data []byte
	err  error
	// sum is the kept sum of it, if only the sum is asked for.
	sum []byte
}

// streams reports whether a file is read while it is sent.
func streams(r *wire.Record) bool { return r.Size > whole }

// fetch begins to read files. Nearby members of one pack are read at once: a request costs more
// than the bytes of most of them.
func fetch(ctx context.Context, store objectstore.Store, all []*fetched) {
	var small []*fetched
	for _, f := range all {
		if f.record != nil && !streams(f.record) {
			f.done = make(chan struct{})
			small = append(small, f)
		}
	}
	slices.SortStableFunc(small, func(a, b *fetched) int {
		return cmp.Or(cmp.Compare(a.record.Key, b.record.Key), cmp.Compare(a.record.Offset, b.record.Offset))
	})
	var spans [][]*fetched
	for _, f := range small {
		if n := len(spans); n > 0 && adjoins(spans[n-1], f) {
			spans[n-1] = append(spans[n-1], f)
			continue
		}
		spans = append(spans, []*fetched{f})
	}
	slices.SortFunc(spans, func(a, b []*fetched) int { return cmp.Compare(slices.Index(all, a[0]), slices.Index(all, b[0])) })
	next := make(chan []*fetched, len(spans))
	for _, span := range spans {
		next <- span
	}
	close(next)
	for range min(fetches, len(spans)) {
		go func() {
			for span := range next {
				read(ctx, store, span)
			}
		}()
	}
}

// adjoins reports whether a member of a pack is read along with others.
func adjoins(span []*fetched, f *fetched) bool {
	first, last := span[0].record, span[len(span)-1].record
	return f.record.Offset+f.record.Length-first.Offset <= batchBytes && f.record.InPack() && last.InPack() && last.Key == f.record.Key && f.record.Offset-(last.Offset+last.Length) <= gap
}

// read reads some files of one object in the store.
func read(ctx context.Context, store objectstore.Store, span []*fetched) {
	if len(span) == 1 {
		span[0].data, span[0].err = readOne(ctx, store, span[0].record)
		close(span[0].done)
		return
	}
	data, from, err := readSpan(ctx, store, span)
	used := int64(0)
	for _, f := range span {
		used += f.record.Length
	}
	for _, f := range span {
		at := f.record.Offset - from
		if err == nil && at+f.record.Length <= int64(len(data)) {
			f.data = data[at : at+f.record.Length : at+f.record.Length]
			if used < int64(len(data))/2 { // what is not sent is not to be held
				f.data = bytes.Clone(f.data)
			}
		}
		if f.data == nil || f.record.Length != f.record.Size || sha256.Sum256(f.data) != f.record.Digest {
			f.data, f.err = readOne(ctx, store, f.record) // its error says what is wrong
		}
		close(f.done)
	}
}

func readSpan(ctx context.Context, store objectstore.Store, span []*fetched) (data []byte, from int64, err error) {
	from = span[0].record.Offset
	to := from
	for _, f := range span {
		to = max(to, f.record.Offset+f.record.Length)
	}
	body, _, err := store.Get(ctx, span[0].record.Key, objectstore.Range{Offset: from, Length: to - from})
	if err != nil {
		return nil, from, err
	}
	defer body.Close()
	data = make([]byte, to-from)
	n, err := io.ReadFull(body, data)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], from, err
}

// readOne reads a file and compares it with its digest.
func readOne(ctx context.Context, store objectstore.Store, r *wire.Record) ([]byte, error) {
	body, err := objectpath.Open(ctx, store, *r)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data := make([]byte, r.Size)
	if _, err := io.ReadFull(body, data); err != nil {
		return nil, err
	}
	switch n, err := io.ReadFull(body, make([]byte, 1)); {
	case n > 0:
		return nil, objectpath.TooLong(*r)
	case !errors.Is(err, io.EOF):
		return nil, err // compared at the end
	}
	return data, nil
}

// wait waits until a file is read.
func (f *fetched) wait(ctx context.Context) ([]byte, error) {
	select {
	case <-f.done:
		return f.data, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ready reports whether a file is available without waiting.
func (f *fetched) ready() bool {
	if f.done == nil {
		return true
	}
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}
