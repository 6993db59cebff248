// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"bytes"
	"context"
	"errors"
	"hash"
	"io"
	"log/slog"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
)

// readBuffer is how much of a file is read from the store at a time.
const readBuffer = 64 << 10

// delta sends a file to a client that may have a part of it. Objects never change, so
// what a client has of one is its beginning, or it is damaged: blocks are looked for
// only where they would be, and no block at another place.
type delta struct {
	*transfer
	blocks *blocks
	sum    hash.Hash
	// skip is how much of the file is not sent, as the client states that it has it (--append).
	skip int64
	// block is what came of the block under way, of number blocks before it.
	block  []byte
	number int32
	strong func(block, sum []byte) []byte
	digest [maxSum]byte
	// unchecked are bytes since it was asked whether the instrument is public, and literals
	// all that were sent.
	instrument string
	unchecked  int
	literals   int64
}

func (t *transfer) newDelta(a *answer) *delta {
	d := &delta{transfer: t, blocks: &a.blocks, sum: t.agreed.transfer.file(), instrument: a.origin.instrument}
	switch {
	case t.options.appends > 0:
		d.skip = a.blocks.length()
	case len(a.blocks.sums) > 0 && t.tokens.blocks():
		d.strong = t.agreed.transfer.blockSum(t.agreed.seed, t.agreed.seedFirst)
		d.block = make([]byte, 0, a.blocks.size)
	}
	return d
}

// whole sends a file that was read.
func (d *delta) whole(data []byte) error { return d.write(data) }

// stream sends a file while it is read and compared with its digest.
func (d *delta) stream(ctx context.Context, r *wire.Record) error {
	body, err := objectpath.Open(ctx, d.cfg.Store, *r)
	if err != nil {
		return err
	}
	defer body.Close()
	buffer := make([]byte, readBuffer)
	for {
		n, err := body.Read(buffer)
		if failed := d.write(buffer[:n]); failed != nil {
			return failed
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// write sends some bytes, as long as the instrument is public.
func (d *delta) write(p []byte) error {
	if d.unchecked += len(p); d.unchecked > checkEvery {
		d.unchecked = 0
		if _, public := d.view.instrument(d.instrument); !public {
			d.tellWithdrawn(d.instrument)
			return errOver
		}
	}
	if d.skip > 0 {
		n := int(min(d.skip, int64(len(p))))
		d.skip -= int64(n)
		if d.options.appends > 1 { // the client sums up what it has, too
			_, _ = d.sum.Write(p[:n])
		}
		p = p[n:]
	}
	_, _ = d.sum.Write(p)
	if d.strong == nil {
		return d.literal(p)
	}
	for len(p) > 0 {
		n := min(len(p), cap(d.block)-len(d.block))
		d.block = append(d.block, p[:n]...)
		p = p[n:]
		if len(d.block) == cap(d.block) {
			if err := d.compare(); err != nil {
				return err
			}
		}
	}
	return d.out.err
}

// compare sends a block, or its number where the client has it.
func (d *delta) compare() error {
	number := d.number
	d.number++
	block := d.block
	d.block = d.block[:0]
	weak, strong, known := d.blocks.sum(int(number))
	length := d.blocks.size
	if number == d.blocks.count-1 && d.blocks.rest > 0 {
		length = d.blocks.rest
	}
	if known && len(block) == int(length) && rolling(block) == weak {
		if sum := d.strong(block, d.digest[:]); bytes.Equal(sum[:min(len(sum), len(strong))], strong) {
			d.metrics.matched.Add(float64(len(block)))
			return d.tokens.block(number)
		}
	}
	return d.literal(block)
}

func (d *delta) literal(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	d.literals += int64(len(p))
	return d.tokens.literal(p)
}

// end ends a file. If the file is damaged, or not public any more, the client gets a sum that
// is wrong, and discards what it received.
func (d *delta) end(a *answer, failure error) error {
	if failure == nil && len(d.block) > 0 {
		if err := d.compare(); err != nil {
			return err
		}
	}
	if err := d.tokens.end(); err != nil {
		return err
	}
	sum := d.sum.Sum(nil)
	if failure != nil {
		sum[0] = ^sum[0]
	}
	d.out.bytes(sum)
	switch {
	case failure == nil, errors.Is(failure, errOver):
	case isFileError(failure):
		d.damaged(a.origin.instrument, failure)
		d.fail(failedGeneral, "%s/%s is damaged in the store, and is not kept", a.origin.instrument, a.path)
	default:
		d.tell(slog.LevelWarn, "a file is cut off: the archive cannot be read", "instrument", a.origin.instrument, "path", a.path, "error", failure)
		d.fail(failedGeneral, "%s/%s could not be read to its end: ask again", a.origin.instrument, a.path)
	}
	return d.out.err
}
