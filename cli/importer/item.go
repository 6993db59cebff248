// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// source is a tree.
type source interface {
	// each yields what lies in the tree. It yields items that cannot be looked at with a *unplaced error and continues; after any other
	// error it ends.
	each(ctx context.Context) iter.Seq2[item, error]
	// key is where a thing of that name lies, or will lie, in the bucket.
	key(name string) string
	// place reads a thing and puts it where its record says, which place
	// completes. Errors: *unplaced, and what ends the import.
	place(ctx context.Context, p *placement) error
}

// item is a thing in a tree.
type item struct {
	// name is its path in the tree, with slashes.
	name     string
	size     int64
	modified time.Time
}

// placement is an item on its way into the archive.
type placement struct {
	item
	// before is what the manifests list under its key.
	before []listed
	// listed is the digest that the checksum file says it has.
	listed *wire.Digest
	trust  bool
	// inName is how the digest begins that its name tells.
	inName string
	notice wire.Notice
	// version is 2 or more where other bytes were there under its name.
	version bool
	// known: the archive has it already, under its name.
	known bool
	// bytes that were read.
	read int64
}

// Reason says why something could not be placed.
type Reason string

// The values of Reason.
const (
	NameDoesNotFit  Reason = "NameDoesNotFit"
	NameNotAllowed  Reason = "NameNotAllowed"
	NameConflict    Reason = "NameConflict"
	OtherInstrument Reason = "OtherInstrument"
	NotAFile        Reason = "NotAFile"
	Empty           Reason = "Empty"
	TooYoung        Reason = "TooYoung"
	TooOld          Reason = "TooOld"
	Unreadable      Reason = "Unreadable"
	Changing        Reason = "Changing"
	ChecksumDiffers Reason = "ChecksumDiffers"
	Missing         Reason = "Missing"
)

// unplaced says why something could not be placed. It is no reason to stop.
type unplaced struct {
	reason Reason
	err    error
}

func (u *unplaced) Error() string { return fmt.Sprintf("%s: %v", u.reason, u.err) }
func (u *unplaced) Unwrap() error { return u.err }

func because(reason Reason, format string, args ...any) error {
	return &unplaced{reason, fmt.Errorf(format, args...)}
}

// digested takes the digest of the bytes, unless the checksum file or the name
// says another.
func (p *placement) digested(digest wire.Digest) error {
	if p.listed != nil && *p.listed != digest {
		return because(ChecksumDiffers, "its bytes have sha-256 %s, the checksum file says %s: fetch it again, or correct the file", digest, p.listed)
	}
	if err := p.compareName(digest); err != nil {
		return err
	}
	p.notice.Digest = digest
	if p.listed != nil || p.inName != "" {
		p.notice.Completeness = wire.CompletenessVerified
	}
	return nil
}

// trusted takes the digest that the checksum file says, unread.
func (p *placement) trusted() error {
	p.notice.Digest, p.notice.DigestSource = *p.listed, wire.DigestSourceListed
	return p.compareName(*p.listed)
}

func (p *placement) compareName(digest wire.Digest) error {
	if !strings.HasPrefix(digest.String(), p.inName) {
		return because(ChecksumDiffers, "it has sha-256 %s, and its name says %s", digest, p.inName)
	}
	return nil
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// digestOf reads all. An error is the reader's.
func digestOf(ctx context.Context, r io.Reader) (digest wire.Digest, size int64, err error) {
	h := sha256.New()
	size, err = io.CopyBuffer(struct{ io.Writer }{h}, contextReader{ctx, r}, make([]byte, readSize))
	return wire.Digest(h.Sum(nil)), size, err
}

// readSize is how much is read at once.
const readSize = 256 << 10
