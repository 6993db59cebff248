// SPDX-License-Identifier: Apache-2.0

package http

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"slices"

	"github.com/substorm/substorm/ingest-gateway/intake/memory"
	"github.com/substorm/substorm/ingest-gateway/store"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// pieces writes the bytes of one request as pieces of an upload. With checksums
// the first piece is written last, once these are right: until then none of
// them follows what was there.
type pieces struct {
	upload *upload
	wake   func()
	buffer *memory.Buffer
	digest hash.Hash
	// first is held back for the checksums; nil without one.
	first *memory.Buffer
	sums  []*checksum
	// start is the offset of the request's first byte, at of the buffer's.
	start, at, size int64
	written         []run
	firstDigest     wire.Digest
}

// newPieces returns a sink for bytes from the upload's offset on. Sums are what these
// are to have.
func newPieces(u *upload, sums []*checksum, wake func()) *pieces {
	return &pieces{
		upload: u, wake: wake, sums: sums, start: u.offset, at: u.offset,
		buffer: u.server.cfg.Pool.NewBuffer(store.PartSize, wake), digest: sha256.New(),
	}
}

// Size implements sink.
func (p *pieces) Size() int64 { return p.size }

// FreeSpace implements sink.
func (p *pieces) FreeSpace() []byte { return p.buffer.FreeSpace() }

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
	for _, c := range p.sums {
		c.Write(space[:n])
	}
	p.buffer.Advance(n)
	p.size += int64(n)
}

// flush writes the buffer as a piece, or holds it back as the first.
func (p *pieces) flush(ctx context.Context) error {
	digest := wire.Digest(p.digest.Sum(nil))
	if len(p.sums) > 0 && p.first == nil {
		// It waits in scratch: a buffer that waits for memory may hold none.
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

// errMoved says that another request has sent the same bytes of the upload.
var errMoved = errors.New("another request has sent these bytes meanwhile: ask for the offset (HEAD)")

func (p *pieces) put(ctx context.Context, offset int64, b *memory.Buffer, digest wire.Digest) error {
	s := p.upload.server
	if err := s.cfg.Archive.MayKeep(); err != nil {
		return err
	}
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

// compare takes a piece of the same size for the piece of an earlier try whose answer was lost.
func (p *pieces) compare(ctx context.Context, key string, size int64) error {
	info, err := p.upload.server.cfg.Objects.Head(ctx, key)
	if err == nil && info.Size != size {
		err = objectstore.ErrExists
	}
	return err
}

// finish writes what is left: all that arrived is kept, also of a request that was cut off. With
// checksums nothing is kept unless it is whole and matches all of them; wrong is one that it does
// not match.
func (p *pieces) finish(ctx context.Context, whole bool) (wrong *checksum, err error) {
	defer p.release()
	if p.buffer.Size() > 0 {
		if err := p.flush(ctx); err != nil {
			return nil, err
		}
	}
	if i := slices.IndexFunc(p.sums, (*checksum).isWrong); i >= 0 {
		wrong = p.sums[i]
	}
	keep := len(p.sums) == 0 || whole && wrong == nil
	if keep && p.first != nil {
		err = p.put(ctx, p.start, p.first, p.firstDigest)
	}
	if !keep || err != nil {
		p.upload.remove(ctx, p.written)
		return wrong, err
	}
	slices.SortFunc(p.written, func(a, b run) int { return cmp.Compare(a.offset, b.offset) })
	for _, w := range p.written {
		p.upload.pieces = append(p.upload.pieces, w)
		p.upload.offset += w.size
	}
	return nil, nil
}

func (p *pieces) release() {
	p.buffer.Release()
	if p.first != nil {
		p.first.Release()
	}
}
