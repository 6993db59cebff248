// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// ErrDamaged: the bytes in the store are not those that were received.
var ErrDamaged = errors.New("the object is damaged")

// Broken says which object is not what was received. It is also ErrDamaged, or
// objectstore.ErrNotFound where nothing lies in its place.
type Broken struct {
	Record wire.Record
	why    error
}

// Error implements error.
func (b *Broken) Error() string { return b.why.Error() }

// Unwrap returns why it is broken.
func (b *Broken) Unwrap() error { return b.why }

// TooLong is the Broken of an object that has more bytes than it should.
func TooLong(r wire.Record) error {
	return &Broken{r, fmt.Errorf("%s: %w: it has more than its %d bytes", r.ID, ErrDamaged, r.Size)}
}

// Open opens the bytes of an object, wherever they lie. They are compared with
// its size and digest as they pass: the last read returns ErrDamaged rather than
// io.EOF where they differ. Errors: those of objectstore; what is damaged or missing
// is a Broken too.
func Open(ctx context.Context, store objectstore.Store, r wire.Record) (io.ReadCloser, error) {
	part := objectstore.All
	if r.InPack() {
		part = objectstore.Range{Offset: r.Offset, Length: r.Length}
	}
	body, _, err := store.Get(ctx, r.Key, part)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, &Broken{r, err}
	}
	if err != nil {
		return nil, err
	}
	return &verified{ReadCloser: body, record: r, digest: sha256.New()}, nil
}

type verified struct {
	io.ReadCloser
	record wire.Record
	digest hash.Hash
	size   int64
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	v.digest.Write(p[:n])
	v.size += int64(n)
	switch {
	case err == nil:
	case !errors.Is(err, io.EOF):
		err = fmt.Errorf("fetch %s: %w", v.record.ID, err)
	case v.size != v.record.Size || wire.Digest(v.digest.Sum(nil)) != v.record.Digest:
		err = &Broken{v.record, fmt.Errorf("%s: %w: its bytes (%d, sha-256 %x) are not those that were received (%d, %s)",
			v.record.ID, ErrDamaged, v.size, v.digest.Sum(nil), v.record.Size, v.record.Digest)}
	}
	return n, err
}

// Framed returns what stood before and behind an object's bytes on the connection
// by which it came.
func Framed(r wire.Record) (head, tail []byte) {
	switch r.Framing {
	case wire.FramingLines:
		return nil, []byte{'\n'}
	case wire.FramingLengthPrefixed:
		return binary.BigEndian.AppendUint32(nil, uint32(r.Size)), nil
	default:
		return nil, nil
	}
}
