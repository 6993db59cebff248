// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// vitals are a connection's signs of activity: bytes that the other machine has acknowledged, and
// messages of the server. If the system does not report the former, bytes that it took stand for
// them.
type vitals struct {
	raw syscall.RawConn

	mu   sync.Mutex
	last time.Time // of the last sign
	// written bytes, and how many of them were acknowledged when we last looked.
	written, acked int64
	// held is how many writers wait for our own rate: that is no silence.
	held int
	// gap is how long the server was silent before its last word.
	gap time.Duration
}

func newVitals(tcp *net.TCPConn) *vitals {
	raw, err := tcp.SyscallConn()
	if err != nil { // never: it is open
		raw = nil
	}
	return &vitals{raw: raw, last: time.Now()}
}

// begin records that something is sent over a connection on which nothing was due.
func (v *vitals) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = time.Now()
}

// wrote counts bytes that the system took.
func (v *vitals) wrote(n int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.written += n
}

// hold records that one more writer waits for our own rate, by 1, or one fewer, by -1.
func (v *vitals) hold(by int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held += by
	v.last = time.Now()
}

// heard records that the server sent something.
func (v *vitals) heard() {
	silence := v.silence(time.Now())
	v.mu.Lock()
	defer v.mu.Unlock()
	v.gap, v.last = silence, time.Now()
}

// lastGap is how long the server was silent before its last word.
func (v *vitals) lastGap() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.gap
}

// mark is the number of the byte that is written next.
func (v *vitals) mark() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.written
}

// has reports whether the other machine has all bytes before mark.
func (v *vitals) has(mark int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.acked >= mark
}

// silence is how long there has been no sign of activity.
func (v *vitals) silence(now time.Time) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	acked := v.written
	if v.raw != nil {
		if waiting, known := unacked(v.raw); known {
			acked -= waiting
		}
	}
	if acked > v.acked {
		v.acked, v.last = acked, now
	}
	if v.held > 0 {
		return 0
	}
	return max(0, now.Sub(v.last))
}

// pulse is the progress of a try to send an object, for the goroutine that waits for it.
type pulse struct {
	// begins asks whether the object's bytes may go out: not where another try was
	// faster to begin.
	begins func() bool

	mu      sync.Mutex
	since   time.Time // when it began, for as long as there is no connection
	conn    *vitals
	granted time.Duration
	mark    int64
	whole   bool
	begun   bool
}

func newPulse() *pulse { return &pulse{since: time.Now(), begins: func() bool { return true }} }

// setConn says over which connection the object goes.
func (p *pulse) setConn(v *vitals) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn, p.whole = v, false
}

// grant gives the server so much more time for its next answer.
func (p *pulse) grant(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.granted = d
}

// markWritten records that all bytes of the object were written.
func (p *pulse) markWritten() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.whole, p.mark = true, p.conn.mark()
}

// silence is how long the try has shown no sign of activity, and whether nothing of
// the object is on its way any more, or yet.
func (p *pulse) silence(now time.Time) (silence time.Duration, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return now.Sub(p.since), true
	}
	silence = max(0, p.conn.silence(now)-p.granted)
	return silence, p.whole && p.conn.has(p.mark)
}

func (p *pulse) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = true
}

func (p *pulse) hasBegun() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun
}

// gap is how long the server was silent before its last word.
func (p *pulse) gap() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return 0
	}
	return p.conn.lastGap()
}
