// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"crypto/md5"
	"encoding/binary"
	"hash"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"
)

// checksum is a way to sum up what is sent, and the blocks that a client has. None of
// them is a defense against who changes data on its way: SHA-256 in the manifests is.
type checksum struct {
	name   string
	length int
	// file begins the sum of a whole file.
	file func() hash.Hash
	// seeded begins the sum of a block.
	seeded func(seed uint64) hash.Hash
}

// checksums are the offered ones, the cheapest first. Clients that do not choose (before rsync
// 3.2.0) have MD5.
var checksums = []checksum{
	{"xxh128", 16, func() hash.Hash { return &xxh128{xxh3.New()} }, func(seed uint64) hash.Hash { return &xxh128{xxh3.NewSeed(seed)} }},
	{"xxh3", 8, func() hash.Hash { return &xxh3LE{xxh3.New()} }, func(seed uint64) hash.Hash { return &xxh3LE{xxh3.NewSeed(seed)} }},
	{"xxh64", 8, func() hash.Hash { return &xxh64LE{xxhash.New()} }, func(seed uint64) hash.Hash { return &xxh64LE{xxhash.NewWithSeed(seed)} }},
	{"md5", 16, md5.New, nil},
}

const defaultChecksum = "md5"

func checksumNames() string {
	var names []string
	for _, c := range checksums {
		names = append(names, c.name)
	}
	return strings.Join(names, " ")
}

func findChecksum(name string) (checksum, bool) {
	if name == "xxhash" { // as rsync 3.2 calls it, too
		name = "xxh64"
	}
	at := slices.IndexFunc(checksums, func(c checksum) bool { return c.name == name })
	if at < 0 {
		return checksum{}, false
	}
	return checksums[at], true
}

// blockSum returns the function that sums up a block. If md5 does so, the seed stands before
// the block, but behind it for clients that do not support that.
func (c checksum) blockSum(seed int32, seedFirst bool) func(block, sum []byte) []byte {
	if c.seeded != nil {
		h := c.seeded(uint64(int64(seed)))
		return func(block, sum []byte) []byte {
			h.Reset()
			_, _ = h.Write(block)
			return h.Sum(sum[:0])
		}
	}
	h, salt := c.file(), binary.LittleEndian.AppendUint32(nil, uint32(seed))
	return func(block, sum []byte) []byte {
		h.Reset()
		if seedFirst && seed != 0 {
			_, _ = h.Write(salt)
		}
		_, _ = h.Write(block)
		if !seedFirst && seed != 0 {
			_, _ = h.Write(salt)
		}
		return h.Sum(sum[:0])
	}
}

// rolling is the weak sum of a block, which a client sends beside the other.
func rolling(block []byte) uint32 {
	var a, b uint32
	for _, c := range block {
		a += uint32(int32(int8(c)))
		b += a
	}
	return a&0xffff | b<<16
}

// The sums of xxHash go over the wire with their least byte first.

type xxh128 struct{ *xxh3.Hasher }

func (h *xxh128) Size() int { return 16 }

func (h *xxh128) Sum(b []byte) []byte {
	sum := h.Sum128()
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, sum.Lo), sum.Hi)
}

type xxh3LE struct{ *xxh3.Hasher }

func (h *xxh3LE) Sum(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, h.Sum64()) }

type xxh64LE struct{ *xxhash.Digest }

func (h *xxh64LE) Sum(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, h.Sum64()) }
