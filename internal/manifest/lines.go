// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Lines yields every record of the files, in their order, as it stands there:
// where a record is listed twice it comes twice. Some files are asked for ahead,
// and none is held in memory. Errors: as Day.
func (f Files) Lines(ctx context.Context, store objectstore.Store) iter.Seq2[wire.Record, error] {
	return f.Readable(ctx, store, nil)
}

// Readable is Lines, but continues after a file that cannot be decoded: bad, unless nil, is called with its error, which is
// wire.ErrMalformed, after what could be read of it. Errors: the others of Lines.
func (f Files) Readable(ctx context.Context, store objectstore.Store, bad func(key string, err error)) iter.Seq2[wire.Record, error] {
	return func(yield func(wire.Record, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		queue := openAhead(ctx, store, f.InEffect)
		defer func() {
			cancel()
			for next := range queue {
				(<-next).close()
			}
		}()
		for next := range queue {
			file := <-next
			if !file.each(yield, bad) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(wire.Record{}, err)
		}
	}
}

// opened is the answer to the request for a file.
type opened struct {
	key  string
	body io.ReadCloser
	err  error
}

// Split returns the compacted day, if any, and the parts after it.
func (f Files) Split() (compacted, parts Files) {
	n := 0
	if len(f.InEffect) > 0 {
		if name, err := wire.ParseManifestKey(f.InEffect[0]); err == nil && name.Compacted {
			n = 1
		}
	}
	compacted.InEffect, parts.InEffect = f.InEffect[:n], f.InEffect[n:]
	return compacted, parts
}

// openAhead asks for files in their order, some of them before it is their turn.
func openAhead(ctx context.Context, store objectstore.Store, keys []string) <-chan <-chan opened {
	queue := make(chan (<-chan opened), fetches)
	go func() {
		defer close(queue)
		for _, key := range keys {
			one := make(chan opened, 1)
			select {
			case queue <- one:
			case <-ctx.Done():
				return
			}
			go func() {
				body, _, err := store.Get(ctx, key, objectstore.All)
				one <- opened{key, body, err}
			}()
		}
	}()
	return queue
}

// each yields the records and closes the file; false where that ended early.
func (o opened) each(yield func(wire.Record, error) bool, bad func(string, error)) bool {
	if o.err != nil {
		yield(wire.Record{}, o.err)
		return false
	}
	defer o.close()
	for r, err := range eachRecord(o.key, o.body) {
		if bad != nil && errors.Is(err, wire.ErrMalformed) {
			bad(o.key, err)
			return true
		}
		if !yield(r, err) || err != nil {
			return false
		}
	}
	return true
}

func (o opened) close() {
	if o.err == nil {
		o.body.Close()
	}
}
