// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"context"
	"io"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
)

// sums are the sums of the files of a folder, which a client asks for with --checksum. The archive
// has only SHA-256, which rsync does not support, so a file whose sum is not kept is read for it,
// out of the budget of the client's address.
type sums struct {
	s     *session
	ctx   context.Context
	items []item
	// batch is being read, and behind it the next one.
	batch, ahead []*fetched
	cancel       context.CancelFunc
	// failed is why the files of a batch cannot be found.
	failed error
}

func (s *session) newSums(ctx context.Context, items []item) *sums {
	ctx, cancel := context.WithCancel(ctx)
	if !s.options.checksum {
		items = nil
	}
	is := &sums{s: s, ctx: ctx, items: items, cancel: cancel}
	is.ahead = is.fetch()
	return is
}

func (s *sums) stop() { s.cancel() }

// fetch begins to read some files.
func (s *sums) fetch() []*fetched {
	if s.failed != nil {
		return nil
	}
	var batch []*fetched
	bytes := int64(0)
	for len(s.items) > 0 && s.items[0].folder == nil && bytes < batchBytes && len(batch) < batchFiles {
		is := &s.items[0]
		s.items = s.items[1:]
		if is.size <= whole {
			bytes += is.size
		}
		batch = append(batch, &fetched{origin: origin{is.place, is.day}, path: join(is.place.dir, is.name)})
	}
	if s.failed = s.s.view.findAll(s.ctx, batch); s.failed != nil {
		return batch
	}
	var unknown []*fetched
	for _, f := range batch {
		if f.record == nil {
			continue
		}
		if f.sum = s.s.sums.get(s.key(f)); f.sum != nil {
			continue
		}
		if s.failed = s.s.spend(f.record.Size); s.failed != nil {
			return batch
		}
		unknown = append(unknown, f)
	}
	fetch(s.ctx, s.s.cfg.Store, unknown)
	return batch
}

func (s *sums) key(f *fetched) sumKey { return sumKey{f.record.Digest, s.s.agreed.list.name} }

// next returns the sum of the next file; for a file that cannot be read it returns zeros, which no
// file's sum is, so that the client asks for it and gets the error. Errors: the connection's,
// ctx's.
func (s *sums) next() ([]byte, error) {
	if len(s.batch) == 0 {
		s.batch, s.ahead = s.ahead, s.fetch()
	}
	if s.failed != nil {
		return nil, s.failed
	}
	f := s.batch[0]
	s.batch = s.batch[1:]
	if f.sum != nil {
		return f.sum, nil
	}
	sum := s.s.agreed.list.file()
	err := errOver
	if f.record != nil {
		err = s.sum(f, sum)
	}
	switch {
	case s.s.out.err != nil:
		return nil, s.s.out.err
	case s.ctx.Err() != nil:
		return nil, s.ctx.Err()
	case err != nil:
		return make([]byte, s.s.agreed.list.length), nil
	}
	s.s.metrics.summed.Add(float64(f.record.Size))
	is := sum.Sum(nil)
	s.s.sums.put(s.key(f), is)
	return is, nil
}

func (s *sums) sum(f *fetched, sum io.Writer) error {
	s.s.keepAlive()
	if f.done != nil {
		data, err := f.wait(s.ctx)
		_, _ = sum.Write(data)
		return err
	}
	return s.stream(f.record, sum)
}

func (s *sums) stream(r *wire.Record, sum io.Writer) error {
	body, err := objectpath.Open(s.ctx, s.s.cfg.Store, *r)
	if err != nil {
		return err
	}
	defer body.Close()
	buffer := make([]byte, readBuffer)
	for {
		n, err := body.Read(buffer)
		_, _ = sum.Write(buffer[:n])
		s.s.keepAlive()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}
