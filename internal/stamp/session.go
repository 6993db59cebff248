// SPDX-License-Identifier: Apache-2.0

package stamp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/retry"
)

// MinInterval is the shortest between packets: reflectors answer no more.
const MinInterval = 100 * time.Millisecond

// renewAfter is how long packets leave without an answer before a session looks up the address and opens a socket again: behind a name,
// or a load balancer, there may be another gateway by now.
const renewAfter = time.Minute

// SessionConfig says what is measured.
type SessionConfig struct {
	// Address of the reflector, host:port.
	Address string
	// From is the local address; the zero value leaves it to the system.
	From netip.Addr
	// Interval between packets, at least MinInterval.
	Interval time.Duration
	// May, where set, says whether a packet of so many bytes may leave now.
	May func(bytes int) bool
	// Trouble, where set, is called with why the path cannot be measured, and with
	// nil for each answer.
	Trouble func(error)
}

// Session measures the link to a reflector.
type Session struct {
	cfg SessionConfig
	// dial opens a socket to the reflector.
	dial func(context.Context) (net.Conn, error)

	mu      sync.Mutex
	tracker Tracker
	// unanswered packets left since the last answer, or since the socket was opened.
	unanswered int
}

// NewSession returns a session that has sent nothing.
func NewSession(cfg SessionConfig) *Session {
	cfg.Interval = max(cfg.Interval, MinInterval)
	if cfg.May == nil {
		cfg.May = func(int) bool { return true }
	}
	if cfg.Trouble == nil {
		cfg.Trouble = func(error) {}
	}
	return &Session{cfg: cfg, dial: cfg.dial}
}

func (c SessionConfig) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: Patience}
	if c.From.IsValid() {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.From, 0))
	}
	return dialer.DialContext(ctx, "udp", c.Address)
}

// Address completes what a person writes: a host, or host:port.
func Address(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, strconv.Itoa(Port)
		if _, err := netip.ParseAddr(text); err != nil && strings.ContainsAny(text, ":[]") {
			return "", fmt.Errorf("%q is neither a host nor host:port", text)
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return "", fmt.Errorf("%q is neither a host nor host:port", text)
	}
	return net.JoinHostPort(host, port), nil
}

// Run sends and listens until ctx ends.
func (s *Session) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.measure(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Trouble(fmt.Errorf("the link to %s: %w", s.cfg.Address, err))
			s.countAway(ctx)
		}
	}
}

// countAway counts packets that cannot leave as lost, for a while: a path that is not
// there is none without loss.
func (s *Session) countAway(ctx context.Context) {
	for end := time.Now().Add(Patience); ctx.Err() == nil && time.Now().Before(end); {
		s.number(time.Now())
		retry.Sleep(ctx, s.cfg.Interval)
	}
}

// Report says how the path is.
func (s *Session) Report(now time.Time) Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tracker.Report(now)
}

func (s *Session) number(now time.Time) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unanswered++
	return s.tracker.Sent(now)
}

// measure uses one socket for as long as there are answers.
func (s *Session) measure(ctx context.Context) error {
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	var listening sync.WaitGroup
	defer listening.Wait()
	defer conn.Close()
	s.mu.Lock()
	s.tracker.Begin()
	s.unanswered = 0
	s.mu.Unlock()
	listening.Go(func() { s.listen(conn) })
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	for b := make([]byte, 0, Size); ; {
		if s.silence() > renewAfter {
			return fmt.Errorf("no reply for %v", renewAfter)
		}
		if now := time.Now(); s.cfg.May(Size) {
			b = Request{Sequence: s.number(now), Sent: TimestampOf(now), Error: unknownError}.Append(b[:0])
			_, _ = conn.Write(b) // what does not leave gets no answer, and counts as lost
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// silence is how long packets were sent without an answer. It does not grow while May holds packets back: an exhausted budget says
// nothing about the path.
func (s *Session) silence() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.unanswered) * s.cfg.Interval
}

// listen takes answers until the socket is closed.
func (s *Session) listen(conn net.Conn) {
	for b := make([]byte, 2048); ; {
		n, err := conn.Read(b)
		now := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // the host reports that the port is not open
			time.Sleep(MinInterval)
			continue
		}
		reply, err := ParseReply(b[:n])
		if err != nil {
			continue
		}
		s.mu.Lock()
		counts := s.tracker.Answered(reply, now)
		if counts {
			s.unanswered = 0
		}
		s.mu.Unlock()
		if counts {
			s.cfg.Trouble(nil)
		}
	}
}
