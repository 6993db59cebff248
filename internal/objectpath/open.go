// SPDX-License-Identifier: Apache-2.0

package objectpath

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

// Broken says which object is not what was received. It is also ErrDamaged, or objectstore.ErrNotFound if nothing lies in its place.
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
	return &Broken{r, fmt.Errorf("%s: %w: it has more than the recorded %d bytes", r.ID, ErrDamaged, r.Size)}
}

// Open opens the bytes of an object, wherever they lie. They are compared with
// its size and digest as they pass: the last read returns ErrDamaged rather than
// io.EOF where they differ, and none that is behind its size passes. Errors: those of
// objectstore; what is damaged or missing is a Broken too.
func Open(ctx context.Context, store objectstore.Store, r wire.Record) (io.ReadCloser, error) {
	part := objectstore.All
	if r.InPack() {
		part = objectstore.Range{Offset: r.Offset, Length: r.Length}
	}
	body, err := open(ctx, store, r, part)
	if err != nil {
		return nil, err
	}
	return &verified{ReadCloser: body, record: r, digest: sha256.New()}, nil
}

// OpenPart opens length bytes of an object from offset on, at least one. With its digest they cannot be compared: if there are fewer, the
// last read returns ErrDamaged rather than io.EOF. Errors: as Open.
func OpenPart(ctx context.Context, store objectstore.Store, r wire.Record, offset, length int64) (io.ReadCloser, error) {
	body, err := open(ctx, store, r, objectstore.Range{Offset: r.Offset + offset, Length: length})
	if err != nil {
		return nil, err
	}
	return &partial{body, r, length}, nil
}

// open says which object it is that is not there, or ends before the part begins.
func open(ctx context.Context, store objectstore.Store, r wire.Record, part objectstore.Range) (io.ReadCloser, error) {
	body, _, err := store.Get(ctx, r.Key, part)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return nil, &Broken{r, err}
	case errors.Is(err, objectstore.ErrRange):
		return nil, &Broken{r, fmt.Errorf("%s: %w: %w", r.ID, ErrDamaged, err)}
	default:
		return body, err
	}
}

// verified is an object on its way.
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
	case v.size > v.record.Size:
		return max(0, n-int(v.size-v.record.Size)), TooLong(v.record)
	case err == nil:
	case !errors.Is(err, io.EOF):
		err = fmt.Errorf("fetch %s: %w", v.record.ID, err)
	default:
		if differs := compare(v.record, v.size, wire.Digest(v.digest.Sum(nil))); differs != nil {
			err = differs
		}
	}
	return n, err
}

// Compare says whether bytes are those of an object. Errors: Broken.
func Compare(r wire.Record, data []byte) error {
	return compare(r, int64(len(data)), sha256.Sum256(data))
}

func compare(r wire.Record, size int64, digest wire.Digest) error {
	if size == r.Size && digest == r.Digest {
		return nil
	}
	return &Broken{r, fmt.Errorf("%s: %w: its bytes (%d, sha-256 %s) are not those that were received (%d, %s)", r.ID, ErrDamaged, size, digest, r.Size, r.Digest)}
}

// partial is a part of an object on its way.
type partial struct {
	io.ReadCloser
	record wire.Record
	left   int64
}

func (p *partial) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	p.left -= int64(n)
	switch {
	case err == nil:
	case !errors.Is(err, io.EOF):
		err = fmt.Errorf("fetch a part of %s: %w", p.record.ID, err)
	case p.left > 0:
		err = &Broken{p.record, fmt.Errorf("%s: %w: it ends %d bytes before the end of the requested part", p.record.ID, ErrDamaged, p.left)}
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
