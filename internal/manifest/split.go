// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
)

// errScratch: there is no folder for scratch files, no space in it, or it gave back other
// bytes than were written.
var errScratch = errors.New("scratch of a large day")

// entry is what is compared of a line: whose it is, where it stands, and, as a hash, where
// it says that the bytes lie.
type entry struct {
	id   IDHash
	at   place
	lies uint64
	rank rank
}

// entrySize is the size of an entry in a file, with its checksum.
const entrySize = len(IDHash{}) + 8 + 8 + 1 + crc32.Size

// share returns which of some shares of the identities an entry belongs to.
func (e *entry) share(shares int) int {
	return int(uint64(binary.BigEndian.Uint32(e.id[:])) * uint64(shares) >> 32)
}

func (e *entry) bytes() []byte {
	b := append(make([]byte, 0, entrySize), e.id[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(e.at))
	b = binary.BigEndian.AppendUint64(b, e.lies)
	b = append(b, byte(e.rank))
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func entryOf(b []byte) (entry, error) {
	end := entrySize - crc32.Size
	if crc32.ChecksumIEEE(b[:end]) != binary.BigEndian.Uint32(b[end:]) {
		return entry{}, errors.New("an entry differs from what was written")
	}
	return entry{IDHash(b), place(binary.BigEndian.Uint64(b[16:])), binary.BigEndian.Uint64(b[24:]), rank(b[32])}, nil
}

// share is a file with the entries of one share of the identities.
type share struct {
	mu    sync.Mutex
	file  *os.File
	out   *bufio.Writer
	count int
}

func newShare() (*share, error) {
	f, err := Scratch(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errScratch, err)
	}
	return &share{file: f, out: bufio.NewWriter(f)}, nil
}

func (s *share) add(e entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if _, err := s.out.Write(e.bytes()); err != nil {
		return fmt.Errorf("%w: %w", errScratch, err)
	}
	return nil
}

// each calls a function with the entries in the order in which they were added.
func (s *share) each(do func(entry)) error {
	err := s.out.Flush()
	in := bufio.NewReader(io.NewSectionReader(s.file, 0, int64(s.count*entrySize)))
	var b [entrySize]byte
	for n := 0; err == nil && n < s.count; n++ {
		if _, err = io.ReadFull(in, b[:]); err != nil {
			break
		}
		var e entry
		if e, err = entryOf(b[:]); err == nil {
			do(e)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errScratch, err)
	}
	return nil
}
