// SPDX-License-Identifier: Apache-2.0

// Package pack stores many small objects as one: a pack is a plain tar, whose
// members each have their record in PAX records. docs/reference/archive-format.md describes it.
//
// Nothing that names an object in the archive ever needs to know the tar: a
// record's offset and length are those of the member's bytes.
package pack

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

const (
	// MaxSize closes a pack, in bytes: it is where a store's rate, measured, does
	// not grow any more with the size.
	MaxSize = 8 << 20
	// block is what everything in a tar is padded to (POSIX.1-2001, pax).
	block = 512
	// Trailer is how many bytes of zero end a pack.
	Trailer = 2 * block
	// mode of what `tar x` makes.
	mode = 0o644
)

// ErrDamaged says that bytes do not have the digest with which they were received.
var ErrDamaged = errors.New("damaged object")

// zeros pads members and ends packs.
var zeros [Trailer]byte

// Header returns what stands before the bytes of a member. An ID in the notice
// says that it had another place before.
func Header(n wire.Notice) ([]byte, error) {
	name := wire.MemberName(n)
	records, err := wire.MemberPax(n)
	if err != nil {
		return nil, err
	}
	if head := quickHeader(name, n.Size, n.ReceivedAt, records); head != nil {
		return head, nil
	}
	return tarHeader(name, n.Size, n.ReceivedAt, records)
}

func tarHeader(name string, size int64, at time.Time, records map[string]string) ([]byte, error) {
	var out bytes.Buffer
	out.Grow(3 * block)
	err := tar.NewWriter(&out).WriteHeader(&tar.Header{
		Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: name, Size: size, Mode: mode, ModTime: at, PAXRecords: records,
	})
	if err != nil {
		return nil, fmt.Errorf("header of %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// Padding returns the zeros that follow the bytes of a member.
func Padding(size int64) []byte { return zeros[:(block-size%block)%block] }
