// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"
	"unsafe"

	"github.com/substorm/substorm/internal/wire"
)

// An object in the spool that will not be announced is counted, and then leaves the spool. A kill may come in between: the
// next incarnation finds it there once more, and must not count it again. So the head of the file of counters holds the
// keys of what is counted and may still be in the spool.
const (
	endsAt  = 4 << 10 // behind what else the head holds
	maxEnds = (headSize - endsAt) / int(unsafe.Sizeof(endKey{}))
)

// endKey is the first half of a key's SHA-256; zero for none.
type endKey [16]byte

func (k endKey) String() string { return hex.EncodeToString(k[:]) }

// endsIn returns the keys in the head of a file of counters. They are not copied.
func endsIn(head []byte) []endKey {
	return unsafe.Slice((*endKey)(unsafe.Pointer(&head[endsAt])), maxEnds)
}

// Resolved counts an object that was received into the spool, by this incarnation or an earlier one, and will not be
// announced, for cause; then it calls leave, which takes the object out of the spool and returns when that is on the disk.
// A kill in between, or an error of leave, which Resolved returns, lets the object come again: it is counted once.
func (l *Ledger) Resolved(n wire.Notice, cause wire.Cause, leave func() error) error {
	return l.countOnce(n.ID, func() {
		l.Unfinished(n.Instrument, n.ReceivedAt, cause, n.Size)
		l.cell(n.Instrument, n.ReceivedAt).change(func(r *received) {
			r.resolved++
			r.resolvedBytes += uint64(n.Size)
			r.digest = r.digest.Minus(n.Digest)
		})
	}, leave)
}

// Unreadable counts bytes of the spool whose object is unknown; key names them. Leave is as for Resolved.
func (l *Ledger) Unreadable(key string, size int64, leave func() error) error {
	return l.countOnce(key, func() {
		now := time.Now()
		l.ObjectBegun(wire.UnknownInstrument, now)
		l.Unfinished(wire.UnknownInstrument, now, wire.CauseCorrupt, size)
	}, leave)
}

// countOnce counts and then calls leave. A key that was counted and did not leave is not counted again. If more keys leave
// at a time than there are places for them, a kill may have the rest counted twice.
func (l *Ledger) countOnce(key string, count func(), leave func() error) error {
	sum := sha256.Sum256([]byte(key))
	k := endKey(sum[:])
	l.leaving.Lock()
	held := endsIn(l.counters.head)
	if !slices.Contains(held, k) && !l.ended.hasCounted(k) {
		count()
		if place := slices.Index(held, endKey{}); place >= 0 {
			held[place] = k
		}
	}
	l.leaving.Unlock()
	if err := leave(); err != nil {
		return err
	}
	l.leaving.Lock()
	defer l.leaving.Unlock()
	if place := slices.Index(held, k); place >= 0 {
		held[place] = endKey{}
	}
	l.ended.forget(k)
	return nil
}
