// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
)

// headerSize is what an object begins with, big-endian: seed, source (2 bytes),
// instrument (4), number. The rest is noise: nothing can be compressed.
const headerSize = 22

// payloads makes the bytes of events. The same seed and event have the same bytes.
type payloads struct {
	seed  uint64
	noise [1 << 20]byte
}

func newPayloads(seed uint64) *payloads {
	p := &payloads{seed: seed}
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], seed)
	_, _ = rand.NewChaCha8(key).Read(p.noise[:]) // never fails
	return p
}

func (p *payloads) header(e event) []byte {
	h := make([]byte, 0, headerSize)
	h = binary.BigEndian.AppendUint64(h, p.seed)
	h = binary.BigEndian.AppendUint16(h, uint16(e.source))
	h = binary.BigEndian.AppendUint32(h, uint32(e.instrument))
	return binary.BigEndian.AppendUint64(h, e.number)
}

// open returns the event's bytes.
func (p *payloads) open(e event) io.ReadCloser {
	return io.NopCloser(&payload{noise: p.noise[:], header: p.header(e), left: e.size, offset: int(e.number % uint64(len(p.noise)))})
}

// fill makes b the first bytes of the event.
func (p *payloads) fill(b []byte, e event) { _, _ = io.ReadFull(p.open(e), b) }

// payload reads a header and then noise, from an offset on, round and round.
type payload struct {
	noise, header []byte
	left          int64
	offset        int
}

// Read implements io.Reader.
func (r *payload) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	b = b[:min(int64(len(b)), r.left)]
	n := copy(b, r.header)
	r.header = r.header[n:]
	for n < len(b) {
		k := copy(b[n:], r.noise[r.offset:])
		n += k
		r.offset = (r.offset + k) % len(r.noise)
	}
	r.left -= int64(n)
	return n, nil
}
