// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/substorm/substorm/internal/wire"
)

// Writer writes a pack of objects whose IDs are known. It belongs to one goroutine.
type Writer struct {
	key     string
	out     io.Writer
	at      int64
	members int
}

// NewWriter begins the pack that will lie under key.
func NewWriter(key string, out io.Writer) *Writer { return &Writer{key: key, out: out} }

// Size is how many bytes were written.
func (w *Writer) Size() int64 { return w.at }

// Members is how many were added.
func (w *Writer) Members() int { return w.members }

// Add copies an object from the next n.Size bytes of body, and returns its notice with the place in this pack. An empty ID becomes the ID
// of the place. If the bytes do not have the notice's digest, the error is ErrDamaged, and the pack must not be used.
func (w *Writer) Add(n wire.Notice, body io.Reader) (wire.Notice, error) {
	head, err := Header(n)
	if err != nil {
		return wire.Notice{}, err
	}
	if err := w.write(head); err != nil {
		return wire.Notice{}, err
	}
	n.Key, n.Offset, n.Length = w.key, w.at, n.Size
	digest := sha256.New()
	copied, err := io.CopyN(io.MultiWriter(w.out, digest), body, n.Size)
	w.at += copied
	if err != nil {
		return wire.Notice{}, fmt.Errorf("object %s: %w", n.ID, err)
	}
	if got := wire.Digest(digest.Sum(nil)); got != n.Digest {
		return wire.Notice{}, fmt.Errorf("object %s: its bytes have the digest %s instead of %s: %w", n.ID, got, n.Digest, ErrDamaged)
	}
	if n.ID == "" {
		n.ID = wire.MemberID(n.Key, n.Offset)
	}
	w.members++
	return n, w.write(Padding(n.Size))
}

// Close ends the pack.
func (w *Writer) Close() error { return w.write(zeros[:]) }

func (w *Writer) write(b []byte) error {
	n, err := w.out.Write(b)
	w.at += int64(n)
	return err
}

// Check reads an object and compares it with its record. Errors: ErrDamaged, and
// those of body.
func Check(body io.Reader, r wire.Record) error {
	digest := sha256.New()
	size, err := io.Copy(digest, body)
	if err != nil {
		return fmt.Errorf("object %s: %w", r.ID, err)
	}
	if got := wire.Digest(digest.Sum(nil)); got != r.Digest || size != r.Size {
		return fmt.Errorf("object %s: %d bytes of digest %s instead of %d of %s: %w", r.ID, size, got, r.Size, r.Digest, ErrDamaged)
	}
	return nil
}
