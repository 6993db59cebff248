// SPDX-License-Identifier: Apache-2.0

package http

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"slices"

	"github.com/substorm/substorm/ingest-gateway/archive/store"
	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// pieces writes the bytes of one request as pieces of an upload. With a checksum
// the first piece is written last, once the checksum is right: until then none of
// them follows what was there.
type pieces struct {
	upload *upload
	wake   func()
	buffer *memory.Buffer
	digest hash.Hash
	// first is held back for the checksum; nil without one.
	first *memory.Buffer
	sum   hash.Hash
	// start is the offset of the request's first byte, at of the buffer's.
	start, at, size int64
	written         []run
	firstDigest     wire.Digest
}

// newPieces returns a sink for bytes from the upload's offset on. Sum computes the
// request's checksum, or is nil.
func newPieces(u *upload, sum hash.Hash, wake func()) *pieces {
	return &pieces{
		upload: u, wake: wake, sum: sum, start: u.offset, at: u.offset,
		buffer: u.server.cfg.Pool.NewBuffer(store.PartSize, wake), digest: sha256.New(),
	}
}

// Size implements sink.
func (p *pieces) Size() int64 { return p.size }

// Room implements sink.
func (p *pieces) Room() []byte { return p.buffer.Room() }

// Asked implements sink.
func (p *pieces) Asked() bool { return p.buffer.Asked() }

// Yield implements sink.
func (p *pieces) Yield() error { return p.buffer.Yield() }

// Space implements sink.
func (p *pieces) Space(ctx context.Context) ([]byte, error) {
	if p.buffer.Full() {
		if err := p.flush(ctx); err != nil {
			return nil, err
		}
	}
	return p.buffer.Space(ctx)
}

// Advance implements sink.
func (p *pieces) Advance(space []byte, n int) {
	p.digest.Write(space[:n])
	if p.sum != nil {
		p.sum.Write(space[:n])
	}
	p.buffer.Advance(n)
	p.size += int64(n)
}

// flush writes the buffer as a piece, or holds it back as the first.
func (p *pieces) flush(ctx context.Context) error {
	digest := wire.Digest(p.digest.Sum(nil))
	if p.sum != nil && p.first == nil {
		// It waits in scratch: who waits for memory may hold none.
		if err := p.buffer.Yield(); err != nil {
			return err
		}
		p.buffer.Seal()
		p.first, p.firstDigest = p.buffer, digest
	} else {
		p.buffer.Seal()
		if err := p.put(ctx, p.at, p.buffer, digest); err != nil {
			return err
		}
		p.buffer.Release()
	}
	p.at = p.start + p.size
	p.digest.Reset()
	p.buffer = p.upload.server.cfg.Pool.NewBuffer(store.PartSize, p.wake)
	return nil
}

// errMoved says that somebody else has sent the same bytes of the upload.
var errMoved = errors.New("another request has sent these bytes meanwhile: ask for the offset (HEAD)")

func (p *pieces) put(ctx context.Context, offset int64, b *memory.Buffer, digest wire.Digest) error {
	s := p.upload.server
	key := wire.UploadPieceKey(s.cfg.Site, p.upload.instrument, p.upload.id, offset)
	tried := false
	err := s.cfg.Archive.Request(ctx, "piece", b.Size(), func(ctx context.Context) error {
		err := s.cfg.Objects.Put(ctx, key, b.Reader(), b.Size(), objectstore.PutOptions{Digest: digest, CreateOnly: true})
		if errors.Is(err, objectstore.ErrExists) && tried {
			return p.compare(ctx, key, b.Size())
		}
		tried = true
		return err
	})
	if errors.Is(err, objectstore.ErrExists) {
		return errMoved
	}
	if err == nil {
		p.written = append(p.written, run{key, offset, b.Size()})
	}
	return err
}

// compare takes a piece of the same size for that of an earlier try whose answer
// was lost.
func (p *pieces) compare(ctx context.Context, key string, size int64) error {
	info, err := p.upload.server.cfg.Objects.Head(ctx, key)
	if err == nil && info.Size != size {
		err = objectstore.ErrExists
	}
	return err
}

// finish writes what is left: all that arrived is kept, also of a request that was
// cut off. With a checksum nothing is kept unless isRight says that it is right.
func (p *pieces) finish(ctx context.Context, isRight func(sum []byte) bool) (right bool, err error) {
	defer p.release()
	if p.buffer.Size() > 0 {
		if err := p.flush(ctx); err != nil {
			return true, err
		}
	}
	if p.sum == nil || p.size == 0 {
		right = p.sum == nil || isRight(p.sum.Sum(nil))
	} else if right = isRight(p.sum.Sum(nil)); right {
		err = p.put(ctx, p.start, p.first, p.firstDigest)
	}
	if !right || err != nil && p.sum != nil {
		p.upload.remove(ctx, p.written)
		return right, err
	}
	slices.SortFunc(p.written, func(a, b run) int { return cmp.Compare(a.offset, b.offset) })
	for _, w := range p.written {
		p.upload.pieces = append(p.upload.pieces, w)
		p.upload.offset += w.size
	}
	return right, err
}

func (p *pieces) release() {
	p.buffer.Release()
	if p.first != nil {
		p.first.Release()
	}
}
