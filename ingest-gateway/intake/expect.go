// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"bytes"
	"encoding/hex"
	"fmt"

	"github.com/substorm/substorm/internal/wire"
)

// maxMark bounds Magic and Trailer, in bytes: what is kept of each object.
const maxMark = 32

// Expect says what a whole object looks like.
type Expect struct {
	// MinSize in bytes.
	MinSize int64
	// Magic is what an object begins with, Trailer what it ends with.
	Magic, Trailer []byte
}

// newExpect reads an entry; nil expects nothing.
func newExpect(e *wire.ExpectEntry) (*Expect, error) {
	if e == nil {
		return nil, nil
	}
	magic, err := mark(e.Magic)
	if err != nil {
		return nil, fmt.Errorf("expect.magic: %w", err)
	}
	trailer, err := mark(e.Trailer)
	if err != nil {
		return nil, fmt.Errorf("expect.trailer: %w", err)
	}
	return &Expect{MinSize: e.MinSize, Magic: magic, Trailer: trailer}, nil
}

func mark(digits string) ([]byte, error) {
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) > maxMark {
		return nil, fmt.Errorf("%q is not at most %d hexadecimal digits: %w", digits, 2*maxMark, wire.ErrMalformed)
	}
	return b, nil
}

// Witness sees the bytes of one object as they pass, and keeps of them what it
// needs to say whether the object is what was expected. Its zero value is ready
// for use, by one goroutine.
type Witness struct {
	size       int64
	head, tail [maxMark]byte // tail ends with the last byte
}

// See takes the object's next bytes.
func (w *Witness) See(b []byte) {
	if w.size < maxMark {
		copy(w.head[w.size:], b)
	}
	w.size += int64(len(b))
	if n := maxMark - len(b); n > 0 {
		copy(w.tail[:n], w.tail[len(b):])
		copy(w.tail[n:], b)
		return
	}
	copy(w.tail[:], b[len(b)-maxMark:])
}

// Meets says whether the object is what was expected.
func (w *Witness) Meets(e *Expect) bool {
	if w.size < max(e.MinSize, int64(len(e.Magic)), int64(len(e.Trailer))) {
		return false
	}
	return bytes.HasPrefix(w.head[:], e.Magic) && bytes.HasSuffix(w.tail[:], e.Trailer)
}
