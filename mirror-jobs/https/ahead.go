// SPDX-License-Identifier: Apache-2.0

package https

import (
	"io"
	"sync"
)

const (
	// aheadBytes is what all answers of a client together may have read ahead, and leastAhead what
	// each may, in bytes. At 16 connections an answer may be 4 MiB ahead: 100 ms of a digest at
	// 40 MB/s on each of them.
	aheadBytes = 64 << 20
	leastAhead = 256 << 10
	// firstAhead is the initial memory of an answer. It doubles whenever less than chunk is free. A read asks for at least chunk bytes,
	// except where the ring wraps around.
	firstAhead = 64 << 10
	chunk      = 16 << 10
)

// aheadOf is how many bytes an answer may be read ahead, with so many connections.
func aheadOf(connections int) int { return max(leastAhead, aheadBytes/max(1, connections)) }

// ahead reads a body ahead of its consumer, so that a digest or a disk that is slow for a while does not stop what comes over the
// network. Once most bytes wait, it reads no more, and TCP makes the other side wait. It is for one reader.
type ahead struct {
	from io.ReadCloser
	most int
	// ended is closed when from is not read any more.
	ended chan struct{}

	mu      sync.Mutex
	changed sync.Cond
	// ring holds what waits: held bytes from at on, the rest of them at its beginning.
	ring     []byte
	at, held int
	// err ends what waits.
	err    error
	closed bool
}

// readAhead begins to read a body. Most is how many bytes may wait.
func readAhead(from io.ReadCloser, most int) *ahead {
	a := &ahead{from: from, most: most, ring: make([]byte, min(firstAhead, most)), ended: make(chan struct{})}
	a.changed.L = &a.mu
	go a.fill()
	return a
}

func (a *ahead) fill() {
	defer close(a.ended)
	for {
		space := a.space()
		if space == nil {
			return
		}
		n, err := a.from.Read(space)
		a.mu.Lock()
		a.held, a.err = a.held+n, err
		a.changed.Broadcast()
		a.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// space waits for memory that is free, and returns as much of it as lies together; nil: closed.
func (a *ahead) space() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ring)-a.held < chunk && len(a.ring) < a.most {
		ring := make([]byte, min(2*len(a.ring), a.most))
		n := copy(ring, a.ring[a.at:])
		copy(ring[n:], a.ring[:a.at])
		a.ring, a.at = ring, 0
	}
	for len(a.ring)-a.held < chunk && !a.closed {
		a.changed.Wait()
	}
	if a.closed {
		return nil
	}
	if a.held == 0 {
		a.at = 0
	}
	if end := a.at + a.held; end < len(a.ring) {
		return a.ring[end:]
	}
	return a.ring[a.at+a.held-len(a.ring) : a.at]
}

// Read implements io.Reader.
func (a *ahead) Read(p []byte) (int, error) {
	a.mu.Lock()
	for a.held == 0 && a.err == nil && !a.closed && len(p) > 0 {
		a.changed.Wait()
	}
	switch {
	case a.closed:
		a.mu.Unlock()
		return 0, io.ErrClosedPipe
	case a.held == 0:
		defer a.mu.Unlock()
		return 0, a.err
	}
	// Bytes that wait are not written to, so they are copied while more come.
	waits := a.ring[a.at:min(a.at+a.held, len(a.ring))]
	a.mu.Unlock()
	n := copy(p, waits)
	a.mu.Lock()
	a.at, a.held = (a.at+n)%len(a.ring), a.held-n
	a.changed.Broadcast()
	a.mu.Unlock()
	return n, nil
}

// Close implements io.Closer. It returns once the body is not read any more.
func (a *ahead) Close() error {
	a.mu.Lock()
	a.closed = true
	a.changed.Broadcast()
	a.mu.Unlock()
	err := a.from.Close()
	<-a.ended
	return err
}
