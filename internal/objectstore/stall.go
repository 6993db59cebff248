// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// creditStalls is how many times the stall timeout an answer may be waited for, and leastRate what comes of it, in bytes a second,
	// in the time by which that grows. Sixteen connections that share a link of 5 kB/s get more each.
	creditStalls = 10
	leastRate    = 256
)

// stallConn gives up on a peer that takes or sends nothing, or sends an answer byte by byte. An idle connection
// of the pool ends so too, somewhat later than the pool lets it live anyway.
type stallConn struct {
	net.Conn
	stall time.Duration

	mu sync.Mutex
	// written is when bytes were sent last, and credit how long the answer to them may be waited for still.
	written time.Time
	credit  time.Duration
}

func newStallConn(conn net.Conn, stall time.Duration) *stallConn {
	return &stallConn{Conn: conn, stall: stall, credit: creditStalls * stall}
}

// stalledError says why a connection was given up. It is ErrUnavailable.
type stalledError struct {
	text string
	err  error
}

// Error implements error.
func (e *stalledError) Error() string { return e.text }

// Unwrap returns what it is.
func (e *stalledError) Unwrap() []error { return []error{ErrUnavailable, e.err} }

// Write gives a Read more time that already waits for the answer: while a body is sent, however slowly, there is none.
func (c *stallConn) Write(p []byte) (int, error) {
	if err := errors.Join(c.SetWriteDeadline(time.Now().Add(c.stall)), c.sends()); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	_ = c.sends() // a connection that was closed meanwhile says so itself
	return n, err
}

// sends restarts the time limit for an answer.
func (c *stallConn) sends() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written, c.credit = time.Now(), creditStalls*c.stall
	return c.SetReadDeadline(c.written.Add(c.silence()))
}

// silence is how long nothing may come: somewhat longer than ResponseHeaderTimeout, which has the better words.
func (c *stallConn) silence() time.Duration { return c.stall + c.stall/2 }

// Read implements net.Conn. Time without a Read in progress does not count: the consumer of the bytes may be slow.
func (c *stallConn) Read(p []byte) (int, error) {
	begun := time.Now()
	if err := c.limitWait(begun); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	slow := c.chargeCredit(begun, n)
	switch {
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return n, err
	case slow:
		return n, &stalledError{fmt.Sprintf("the response took longer than %s, at less than %d bytes per second", creditStalls*c.stall, leastRate), err}
	default:
		return n, &stalledError{fmt.Sprintf("nothing came for %s", c.silence()), err}
	}
}

func (c *stallConn) limitWait(begun time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.SetReadDeadline(begun.Add(min(c.silence(), max(0, c.credit))))
}

// chargeCredit charges what was waited for, and says whether nothing is left of the credit.
func (c *stallConn) chargeCredit(begun time.Time, n int) (slow bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.written.After(begun) {
		begun = c.written
	}
	earned := time.Duration(float64(time.Second) * float64(n) / leastRate)
	c.credit = min(creditStalls*c.stall, c.credit-time.Since(begun)+earned)
	return c.credit <= 0
}
