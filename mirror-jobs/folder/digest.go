// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"hash"
	"io"
	"sync"

	"github.com/substorm/substorm/internal/wire"
)

// digesting computes the digest of a large object while its parts come: of its first parts, as far as they are there, concurrently with
// the fetch of the rest.
type digesting struct {
	group sync.WaitGroup

	// Guarded by Large.mu: busy says whether it is under way, and over whether it is of no use any more.
	busy, over bool
	// parts that are in sum, and what kept the next one from being read.
	parts int
	sum   hash.Hash
	err   error
}

// digestParts continues the digest, unless that is under way.
func (l *Large) digestParts() {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &l.digest
	if d.busy || !l.digestible() {
		return
	}
	d.busy = true
	d.group.Go(func() {
		for {
			l.mu.Lock()
			d.busy = l.digestible()
			n, busy := d.parts, d.busy
			l.mu.Unlock()
			if !busy {
				return
			}
			offset, length := l.Range(n)
			_, err := io.Copy(d.sum, io.NewSectionReader(l.file, offset, length))
			l.mu.Lock()
			d.parts, d.err = n+1, err
			l.mu.Unlock()
		}
	})
}

// digestible says whether the next part is there. The mutex is held.
func (l *Large) digestible() bool {
	return !l.digest.over && l.digest.err == nil && l.done[l.digest.parts]
}

// digested returns the digest and the size of an object whose parts are all there.
func (l *Large) digested() (wire.Digest, int64, error) {
	l.digest.group.Wait()
	info, err := l.file.Stat()
	if err == nil {
		err = l.digest.err
	}
	if err != nil {
		return wire.Digest{}, 0, err
	}
	return wire.Digest(l.digest.sum.Sum(nil)), info.Size(), nil
}

// endDigest ends it after the part that it is at.
func (l *Large) endDigest() {
	l.mu.Lock()
	l.digest.over = true
	l.mu.Unlock()
	l.digest.group.Wait()
}
