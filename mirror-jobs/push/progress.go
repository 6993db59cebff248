// SPDX-License-Identifier: Apache-2.0

package push

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Progress is how far a run is. The zero value is the beginning of a run; its methods may be called from several goroutines.
type Progress struct {
	objects, bytes, owedObjects, owedBytes, compared, removed, failed, differing, quarantined, empty, badNames, unconfirmed atomic.Int64
	// oldest is when the oldest object was received that the partner lacks.
	oldest atomic.Pointer[time.Time]
	// wentBack are the signs that the Site that is pulled from went back.
	wentBack atomic.Pointer[wire.MirrorWentBack]
	// originClock says what is wrong with its clock.
	originClock atomic.Pointer[string]
	// unawaited says why it does not wait for this mirror.
	unawaited atomic.Pointer[wire.MirrorUnawaited]

	listed, answered atomic.Bool
}

// Report is what a report says of it.
func (p *Progress) Report() wire.MirrorProgress {
	return wire.MirrorProgress{
		Objects: p.objects.Load(), Bytes: p.bytes.Load(), TotalObjects: p.owedObjects.Load(), TotalBytes: p.owedBytes.Load(),
		Compared: p.compared.Load(), Removed: p.removed.Load(), Failed: p.failed.Load(), Quarantined: p.quarantined.Load(), Empty: p.empty.Load(),
		BadNames: p.badNames.Load(),
	}
}

// Owed is what is still to be moved; nil while the run has not looked at everything.
func (p *Progress) Owed() *wire.MirrorOwed {
	if !p.listed.Load() {
		return nil
	}
	return &wire.MirrorOwed{Objects: p.owedObjects.Load() - p.objects.Load(), Bytes: p.owedBytes.Load() - p.bytes.Load(), Oldest: p.Oldest()}
}

// Listed says that the run has looked at everything that is selected.
func (p *Progress) Listed() { p.listed.Store(true) }

// Answer says that the other side answered, and let us in.
func (p *Progress) Answer() { p.answered.Store(true) }

// Answered says whether it did.
func (p *Progress) Answered() bool { return p.answered.Load() }

// SetWentBack notes the signs that the Site that is pulled from went back; nil: there are none.
func (p *Progress) SetWentBack(is *wire.MirrorWentBack) { p.wentBack.Store(is) }

// WentBack returns the signs that the Site that is pulled from went back.
func (p *Progress) WentBack() *wire.MirrorWentBack { return p.wentBack.Load() }

// SetOriginClock notes why the clock of the Site that is pulled from cannot be believed.
func (p *Progress) SetOriginClock(why string) { p.originClock.Store(&why) }

// OriginClock returns why the clock of the Site that is pulled from cannot be believed; empty: nothing is wrong with it.
func (p *Progress) OriginClock() string {
	if why := p.originClock.Load(); why != nil {
		return *why
	}
	return ""
}

// SetUnawaited notes why the Site that is pulled from does not wait for this mirror; nil: it does.
func (p *Progress) SetUnawaited(why *wire.MirrorUnawaited) { p.unawaited.Store(why) }

// Unawaited returns why the Site that is pulled from does not wait for this mirror; nil: it does, or nothing is known of it.
func (p *Progress) Unawaited() *wire.MirrorUnawaited { return p.unawaited.Load() }

// Differing are the objects that verification found to be others at the partner.
func (p *Progress) Differing() int64 { return p.differing.Load() }

// Owe counts an object that is to be moved.
func (p *Progress) Owe(bytes int64) {
	p.owedObjects.Add(1)
	p.owedBytes.Add(bytes)
}

// End counts an object that was moved, or could not be.
func (p *Progress) End(bytes int64, moved bool) { p.Begin(bytes).End(moved) }

// Begin counts the bytes of an object that is owed while it is moved.
func (p *Progress) Begin(size int64) *Moving { return &Moving{p: p, size: size} }

// Moving is an object on its way. Its methods may be called from several goroutines. A nil one counts nothing.
type Moving struct {
	p *Progress

	mu          sync.Mutex
	size, moved int64
	there       bool
}

// Move counts bytes of it. Bytes that come once more, because a link broke or the object is sent again, are not counted twice: no
// object counts for more than its size.
func (m *Moving) Move(bytes int64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	bytes = min(bytes, m.size-m.moved)
	m.moved += bytes
	m.p.bytes.Add(bytes)
}

// Reader counts what is read of the object.
func (m *Moving) Reader(from io.Reader) io.Reader { return movingReader{from, m} }

type movingReader struct {
	io.Reader
	m *Moving
}

// Read implements io.Reader.
func (r movingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.m.Move(int64(n))
	return n, err
}

// Resize says how many bytes are to be moved, where another number, or none, was known when it came to be owed.
func (m *Moving) Resize(size int64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.owedBytes.Add(size - m.size)
	m.size = size
	if more := m.moved - size; more > 0 {
		m.moved = size
		m.p.bytes.Add(-more)
	}
}

// End says that it was moved, or could not be: then its bytes do not count.
func (m *Moving) End(moved bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.there && moved {
		return
	}
	m.anew()
	if moved {
		m.p.objects.Add(1)
		m.p.bytes.Add(m.size - m.moved)
		m.moved = m.size
		return
	}
	m.p.failed.Add(1)
	m.p.bytes.Add(-m.moved)
	m.moved = 0
}

// There says that the other side has it already: it is not moved, and was compared.
func (m *Moving) There() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.bytes.Add(-m.moved)
	m.p.owedBytes.Add(-m.size)
	m.p.owedObjects.Add(-1)
	m.p.compared.Add(1)
	m.moved, m.there = 0, true
}

// Forget says that it is not owed any more: the other side does not have it by now.
func (m *Moving) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p.bytes.Add(-m.moved)
	m.p.owedBytes.Add(-m.size)
	m.p.owedObjects.Add(-1)
	m.moved, m.size = 0, 0
}

// Anew says that it is moved nevertheless: verification found another one at the other side.
func (m *Moving) Anew() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.anew()
}

func (m *Moving) anew() {
	if m.there {
		m.p.owedBytes.Add(m.size)
		m.p.owedObjects.Add(1)
		m.p.compared.Add(-1)
		m.there = false
	}
}

// lack notes that the partner has not got an object that was received at a time.
func (p *Progress) lack(received time.Time) {
	for {
		was := p.oldest.Load()
		if was != nil && !received.Before(*was) || p.oldest.CompareAndSwap(was, &received) {
			return
		}
	}
}

// Oldest is when the oldest object was received that could not be brought; zero where all could.
func (p *Progress) Oldest() time.Time {
	if at := p.oldest.Load(); at != nil {
		return at.UTC()
	}
	return time.Time{}
}

// unconfirm counts purges that are asked of the partner and not confirmed.
func (p *Progress) unconfirm(n int) { p.unconfirmed.Add(int64(n)) }

// Unconfirmed are the purges that are asked of the partner and not confirmed.
func (p *Progress) Unconfirmed() int64 { return p.unconfirmed.Load() }

// Compare counts objects that were found to be there.
func (p *Progress) Compare(n int) { p.compared.Add(int64(n)) }

// Remove counts objects that were removed.
func (p *Progress) Remove(n int) { p.removed.Add(int64(n)) }

// Keep counts objects that could not be removed.
func (p *Progress) Keep(n int) { p.failed.Add(int64(n)) }

// PassEmpty counts a file without a byte, which is passed over.
func (p *Progress) PassEmpty() { p.empty.Add(1) }

// PassBadNames counts files whose names no object can have, which are passed over.
func (p *Progress) PassBadNames(n int) { p.badNames.Add(int64(n)) }

// Quarantine counts files that belong to no Instrument.
func (p *Progress) Quarantine(n int) { p.quarantined.Add(int64(n)) }

func (p *Progress) differ() { p.differing.Add(1) }
