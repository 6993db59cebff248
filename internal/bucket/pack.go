// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// ReadChunk is how much of a pack one request asks for: headers of small members
// come by the hundred, and the bytes of large ones need not come at all.
const ReadChunk = 256 << 10

// Members yields the members of a pack in its order, reading no more of the store
// than the headers and what lies close to them. After an error it ends. Errors:
// those of objectstore, wire.ErrMalformed, wire.ErrNewerFormat.
func Members(ctx context.Context, store objectstore.Store, key string, size int64) iter.Seq2[wire.Notice, error] {
	return func(yield func(wire.Notice, error) bool) {
		source := &ranges{ctx: ctx, store: store, key: key, size: size}
		defer source.close()
		MembersFrom(source, key, size)(yield)
	}
}

// MembersFrom is Members of a pack that is at hand, from its beginning.
func MembersFrom(r io.ReadSeeker, key string, size int64) iter.Seq2[wire.Notice, error] {
	return func(yield func(wire.Notice, error) bool) {
		archive := tar.NewReader(r)
		for {
			head, err := archive.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			n, err := member(r, key, size, head, err)
			if !yield(n, err) || err != nil {
				return
			}
		}
	}
}

// member reads the member whose header was read just now: its bytes come next.
func member(r io.ReadSeeker, key string, size int64, head *tar.Header, err error) (wire.Notice, error) {
	if store, ok := r.(*ranges); ok && store.err != nil {
		return wire.Notice{}, fmt.Errorf("pack %s: %w", key, store.err)
	}
	if err != nil {
		return wire.Notice{}, fmt.Errorf("pack %s: %w: %w", key, wire.ErrMalformed, err)
	}
	offset, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return wire.Notice{}, fmt.Errorf("pack %s: %w", key, err)
	}
	for name := range head.PAXRecords {
		if strings.HasPrefix(name, "GNU.") { // sparse: its bytes lie elsewhere
			return wire.Notice{}, fmt.Errorf("pack %s: member %q is sparse: %w", key, head.Name, wire.ErrMalformed)
		}
	}
	if head.Typeflag != tar.TypeReg || head.Size <= 0 || offset+head.Size > size {
		return wire.Notice{}, fmt.Errorf("pack %s: invalid member %q of %d bytes at %d: %w", key, head.Name, head.Size, offset, wire.ErrMalformed)
	}
	return wire.NoticeOfMember(key, head.Name, offset, head.Size, head.PAXRecords)
}

// ranges reads an object by requests for parts of it.
type ranges struct {
	ctx   context.Context
	store objectstore.Store
	key   string
	size  int64

	at   int64 // of the next byte
	body io.ReadCloser
	left int64 // bytes that body still has
	// err is why the store did not give what was asked for.
	err error
}

// Read implements io.Reader.
func (r *ranges) Read(p []byte) (int, error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	if r.left == 0 {
		if err := r.open(); err != nil {
			r.err = err
			return 0, err
		}
	}
	n, err := r.body.Read(p[:min(int64(len(p)), r.left)])
	r.at += int64(n)
	r.left -= int64(n)
	if n == 0 && err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		r.err = fmt.Errorf("read: %w: %w", objectstore.ErrUnavailable, err)
		return 0, r.err
	}
	return n, nil
}

func (r *ranges) open() error {
	r.close()
	length := min(ReadChunk, r.size-r.at)
	body, _, err := r.store.Get(r.ctx, r.key, objectstore.Range{Offset: r.at, Length: length})
	if err != nil {
		return err
	}
	r.body, r.left = body, length
	return nil
}

// Seek implements io.Seeker: forward, or where it is.
func (r *ranges) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += r.at
	default:
		offset += r.size
	}
	skip := offset - r.at
	switch {
	case offset < 0:
		return r.at, fmt.Errorf("seek to %d", offset)
	case skip == 0:
		return r.at, nil
	case skip > 0 && skip <= r.left:
		n, err := io.CopyN(io.Discard, r.body, skip)
		r.at += n
		r.left -= n
		if err != nil {
			r.err = fmt.Errorf("read: %w: %w", objectstore.ErrUnavailable, err)
		}
		return r.at, err
	}
	r.close()
	r.at = offset
	return r.at, nil
}

func (r *ranges) close() {
	if r.body != nil {
		_ = r.body.Close()
	}
	r.body, r.left = nil, 0
}
