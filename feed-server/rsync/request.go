// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"context"
	"encoding/binary"

	"golang.org/x/sync/semaphore"
)

const (
	// maxBlock is the largest block that a client may have, and maxSum the longest sum of
	// one, in bytes.
	maxBlock = 1 << 17
	maxSum   = 16
	// maxBlockSums is how many bytes of sums of blocks wait for their files, of one transfer:
	// those of 6 GB in blocks of 128 KiB and more. Blocks beyond them are sent as if the client
	// had nothing.
	maxBlockSums = 2 << 20
	// requestsAhead is how many requests are read before they are answered.
	requestsAhead = batchFiles
	// maxBasisName is how long the name of another file may be that the client has instead.
	maxBasisName = 1024
)

// request is what a client asks about an entry of a list.
type request struct {
	index int32
	flags uint16
	// basis is the kind of the file that the client has, and other its name.
	basis    byte
	other    string
	hasOther bool
	blocks   blocks
	// deleted is the client's count of what it deleted (ndxDeleted).
	deleted [5]int32
}

func (r *request) transfers() bool { return r.flags&itemTransfer != 0 }

// blocks are the blocks of the file that a client has.
type blocks struct {
	count, size, sumLength, rest int32
	// sums are the weak and the strong one of each block, of the first ones.
	sums []byte
	// held is what is to be given back to the memory for sums.
	held int64
}

// length is how long the file is that the client has.
func (b *blocks) length() int64 {
	length := int64(b.count) * int64(b.size)
	if b.rest > 0 {
		length -= int64(b.size - b.rest)
	}
	return length
}

// sum returns the sums of a block, if they are known.
func (b *blocks) sum(number int) (weak uint32, strong []byte, ok bool) {
	each := 4 + int(b.sumLength)
	if (number+1)*each > len(b.sums) {
		return 0, nil, false
	}
	is := b.sums[number*each:][:each]
	return binary.LittleEndian.Uint32(is), is[4:], true
}

// requests reads what a client asks for, ahead of the answers.
type requests struct {
	in *input
	// dryRun and appends say what a client does not send.
	dryRun, appends bool
	// space is for sums of blocks.
	space *semaphore.Weighted
	all   chan *request
	// unread was taken from all, and is the next that poll returns.
	unread *request
	// err is set when all is closed.
	err error
}

// poll returns a request that is there already; nil: none is.
func (r *requests) poll() *request {
	if is := r.unread; is != nil {
		r.unread = nil
		return is
	}
	select {
	case is := <-r.all: // nil where it is closed
		return is
	default:
		return nil
	}
}

func newRequests(in *input, o *options) *requests {
	return &requests{in: in, dryRun: o.dryRun, appends: o.appends > 0, space: semaphore.NewWeighted(maxBlockSums), all: make(chan *request, requestsAhead)}
}

// run reads until the connection, or ctx, ends.
func (r *requests) run(ctx context.Context) {
	defer close(r.all)
	for {
		is, err := r.read(ctx)
		if err != nil {
			r.err = err
			return
		}
		select {
		case r.all <- is:
		case <-ctx.Done():
			r.err = ctx.Err()
			return
		}
	}
}

// read reads one.
func (r *requests) read(ctx context.Context) (*request, error) {
	index, err := r.in.index()
	if err != nil {
		return nil, err
	}
	next := &request{index: index}
	switch {
	case index == ndxDone:
		return next, nil
	case index == ndxDeleted:
		for i := range next.deleted {
			if next.deleted[i], err = r.in.varint(); err != nil {
				return nil, err
			}
		}
		return next, nil
	case index < 0:
		return nil, malformed("index %d", index)
	}
	if next.flags, err = r.in.short(); err != nil {
		return nil, err
	}
	if next.flags&itemBasisFollows != 0 {
		if next.basis, err = r.in.byte(); err != nil {
			return nil, err
		}
	}
	if next.hasOther = next.flags&itemNameFollows != 0; next.hasOther {
		if next.other, err = r.in.text(maxBasisName); err != nil {
			return nil, err
		}
	}
	if next.transfers() && !r.dryRun {
		next.blocks, err = r.readBlocks(ctx)
	}
	return next, err
}

// readBlocks reads the sums of the file that a client has.
func (r *requests) readBlocks(ctx context.Context) (blocks, error) {
	var b blocks
	for _, v := range []*int32{&b.count, &b.size, &b.sumLength, &b.rest} {
		var err error
		if *v, err = r.in.int(); err != nil {
			return b, err
		}
	}
	if b.count < 0 || b.size < 0 || b.size > maxBlock || b.sumLength < 0 || b.sumLength > maxSum || b.rest < 0 || b.rest > b.size || b.count > 0 && b.size == 0 {
		return b, malformed("%d blocks of %d bytes with sums of %d and a rest of %d", b.count, b.size, b.sumLength, b.rest)
	}
	if r.appends {
		return b, nil
	}
	each := int64(4 + b.sumLength)
	all := int64(b.count) * each
	kept := min(all, maxBlockSums/2/each*each)
	if err := r.space.Acquire(ctx, kept); err != nil {
		return b, err
	}
	b.held = kept
	b.sums = make([]byte, kept)
	if err := r.in.full(b.sums); err != nil {
		return b, err
	}
	return b, r.in.skip(all - kept)
}

// done gives back what a request took.
func (r *requests) done(is *request) {
	r.space.Release(is.blocks.held)
	is.blocks.held, is.blocks.sums = 0, nil
}
