// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"sync"

	"github.com/substorm/substorm/internal/wire"
)

// Assembly is a pack of objects that lie elsewhere, on a disk: it holds what
// stands before each of them, and reads their bytes where they are.
type Assembly struct {
	members []assembled
	size    int64 // without the trailer
}

// assembled is a member.
type assembled struct {
	from   int64 // where its head begins
	head   []byte
	record wire.Record
	open   func() (Body, error)
}

// Body is an object's bytes. It belongs to one goroutine.
type Body interface {
	io.ReaderAt
	io.Closer
}

// MemberError says which member of an Assembly cannot be read as it was received.
type MemberError struct {
	// Member counts from 0 in the order of Add.
	Member int
	// Err is ErrDamaged, or of the member's Body.
	Err error
}

// Error implements error.
func (e *MemberError) Error() string { return fmt.Sprintf("member %d: %v", e.Member, e.Err) }

// Unwrap returns what went wrong.
func (e *MemberError) Unwrap() error { return e.Err }

// Add adds an object that has an ID and n.Size bytes, and returns its notice with the offset in this pack. The pack's key is not set
// here.
func (a *Assembly) Add(n wire.Notice, open func() (Body, error)) (wire.Notice, error) {
	head, err := Header(n)
	if err != nil {
		return n, err
	}
	n.Offset, n.Length = a.size+int64(len(head)), n.Size
	a.members = append(a.members, assembled{from: a.size, head: head, record: n.Record, open: open})
	a.size = n.Offset + n.Size + int64(len(Padding(n.Size)))
	return n, nil
}

// Size is the size of the pack, in bytes.
func (a *Assembly) Size() int64 { return a.size + Trailer }

// Need is about how much larger an object makes a pack, in bytes.
func Need(n wire.Notice) int64 { return n.Size + 4*block + int64(len(Padding(n.Size))) }

// Digest reads all, and returns the pack's digest. Errors: a MemberError for the
// first that does not have the digest of its notice, or cannot be read.
func (a *Assembly) Digest() (wire.Digest, error) {
	whole, own := sha256.New(), sha256.New()
	for i, m := range a.members {
		whole.Write(m.head)
		own.Reset()
		if err := m.copyTo(io.MultiWriter(whole, own)); err != nil {
			return wire.Digest{}, &MemberError{i, err}
		}
		if got := wire.Digest(own.Sum(nil)); got != m.record.Digest {
			return wire.Digest{}, &MemberError{i, fmt.Errorf("object %s: its bytes have the digest %s: %w", m.record.ID, got, ErrDamaged)}
		}
		whole.Write(Padding(m.record.Size))
	}
	whole.Write(zeros[:])
	return wire.Digest(whole.Sum(nil)), nil
}

func (m *assembled) copyTo(w io.Writer) error {
	body, err := m.open()
	if err != nil {
		return err
	}
	_, err = io.CopyN(w, io.NewSectionReader(body, 0, m.record.Size), m.record.Size)
	return cmp.Or(err, body.Close())
}

// Reader returns a reader of the pack, which is to be closed.
func (a *Assembly) Reader() *AssemblyReader { return &AssemblyReader{assembly: a} }

// AssemblyReader reads a pack. It has one object open at a time. An HTTP client may
// still read after its request failed: Close ends that.
type AssemblyReader struct {
	assembly *Assembly

	mu     sync.Mutex
	at     int64
	body   Body
	of     int // whose it is
	closed bool
}

// Read implements io.Reader.
func (r *AssemblyReader) Read(p []byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, fs.ErrClosed
	}
	a := r.assembly
	for n == 0 && err == nil && len(p) > 0 {
		if left := a.Size() - r.at; left <= Trailer {
			n = copy(p, zeros[:left])
			err = eofAt(left)
		} else if n, err = r.readMember(p); errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // of an object that lacks bytes
		}
		r.at += int64(n)
	}
	return n, err
}

func eofAt(left int64) error {
	if left == 0 {
		return io.EOF
	}
	return nil
}

// readMember reads some of a member's head, bytes or padding.
func (r *AssemblyReader) readMember(p []byte) (int, error) {
	all := r.assembly.members
	i := sort.Search(len(all), func(i int) bool { return all[i].from > r.at }) - 1
	m := &all[i]
	at := r.at - m.from
	if at < int64(len(m.head)) {
		return copy(p, m.head[at:]), nil
	}
	if at -= int64(len(m.head)); at >= m.record.Size {
		return copy(p, Padding(m.record.Size)[at-m.record.Size:]), nil
	}
	if err := r.open(i); err != nil {
		return 0, err
	}
	n, err := r.body.ReadAt(p[:min(int64(len(p)), m.record.Size-at)], at)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (r *AssemblyReader) open(i int) error {
	if r.body != nil && r.of == i {
		return nil
	}
	if err := r.leave(); err != nil {
		return err
	}
	body, err := r.assembly.members[i].open()
	if err == nil {
		r.body, r.of = body, i
	}
	return err
}

// Seek implements io.Seeker.
func (r *AssemblyReader) Seek(offset int64, whence int) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.assembly.Size()
	}
	if offset < 0 || offset > r.assembly.Size() {
		return 0, fmt.Errorf("seek to %d of a pack of %d bytes", offset, r.assembly.Size())
	}
	r.at = offset
	return offset, nil
}

// Close implements io.Closer.
func (r *AssemblyReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.leave()
}

func (r *AssemblyReader) leave() error {
	if r.body == nil {
		return nil
	}
	body := r.body
	r.body = nil
	return body.Close()
}
