// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strings"
)

// Digest is a SHA-256.
type Digest [32]byte

// String returns 64 lower-case hex digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes 64 lower-case hex digits.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error {
	parsed, err := ParseDigest(string(text))
	*d = parsed
	return err
}

// ParseDigest reads 64 lower-case hex digits.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != hex.EncodedLen(len(d)) || s != strings.ToLower(s) {
		return Digest{}, fmt.Errorf("digest %q is not 64 lower-case hex digits: %w", s, ErrMalformed)
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Digest{}, fmt.Errorf("digest %q: %w", s, ErrMalformed)
	}
	return d, nil
}

// Minus returns what Plus makes d of, with other.
func (d Digest) Minus(other Digest) Digest {
	var rest Digest
	var borrow uint64
	for i := 24; i >= 0; i -= 8 {
		var word uint64
		word, borrow = bits.Sub64(binary.BigEndian.Uint64(d[i:]), binary.BigEndian.Uint64(other[i:]), borrow)
		binary.BigEndian.PutUint64(rest[i:], word)
	}
	return rest
}

// Plus returns the sum of two digests modulo 2^256. The sum of a set's digests
// tells two sets apart whatever the order in which their members came (additive
// multiset hash: Clarke et al., ASIACRYPT 2003).
func (d Digest) Plus(other Digest) Digest {
	var sum Digest
	var carry uint64
	for i := 24; i >= 0; i -= 8 {
		var word uint64
		word, carry = bits.Add64(binary.BigEndian.Uint64(d[i:]), binary.BigEndian.Uint64(other[i:]), carry)
		binary.BigEndian.PutUint64(sum[i:], word)
	}
	return sum
}
