// SPDX-License-Identifier: Apache-2.0

package https

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// path is what a client's connections tell of the way to the other side.
type path struct {
	mu   sync.Mutex
	open map[*measured]bool
	// quickest is the least time from a request to its answer; 0: there was none.
	quickest time.Duration
	// fastest is the most that Path saw all connections together receive, in bytes a second.
	fastest int64
}

// noteAnswer notes how long an answer took to begin.
func (p *path) noteAnswer(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quickest == 0 || took < p.quickest {
		p.quickest = took
	}
}

// way is what is known for plan.Streams.
func (p *path) way() (w plan.Way) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Answer, w.BytesPerSecond, w.Window = p.quickest, p.fastest, window()
	for m := range p.open {
		if info, known := infoOf(m.TCPConn); known && (w.RoundTrip == 0 || info.roundTrip < w.RoundTrip) {
			w.RoundTrip = info.roundTrip
		}
	}
	return w
}

// measured is a connection whose received bytes are recorded over time.
type measured struct {
	*net.TCPConn
	of *path

	// Guarded by path.mu: what was received until a time.
	received uint64
	at       time.Time
}

// Close implements net.Conn.
func (m *measured) Close() error {
	m.of.mu.Lock()
	delete(m.of.open, m)
	m.of.mu.Unlock()
	return m.TCPConn.Close()
}

// dial has the connections of a dialer measured.
func (p *path) dial(dialer *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		tcp, is := conn.(*net.TCPConn)
		if err != nil || !is {
			return conn, err
		}
		m := &measured{TCPConn: tcp, of: p, at: time.Now()}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.open == nil {
			p.open = map[*measured]bool{}
		}
		p.open[m] = true
		return m, nil
	}
}

// tcpInfo is what the kernel knows of a connection (TCP_INFO, tcp(7)).
type tcpInfo struct {
	roundTrip             time.Duration
	received              uint64
	segments, retransmits uint64
}

// Path returns what was measured of the way since it was called last: the least round trip, and what the fastest connection
// received; false where no connection is open, or the system does not tell.
func (c *Client) Path() (seen wire.MirrorPathSeen, ok bool) {
	c.path.mu.Lock()
	defer c.path.mu.Unlock()
	var segments, retransmits uint64
	var rate int64
	now := time.Now()
	for m := range c.path.open {
		info, known := infoOf(m.TCPConn)
		if !known {
			continue
		}
		seen.Connections++
		if micros := info.roundTrip.Microseconds(); seen.RoundTripMicros == 0 || micros < seen.RoundTripMicros {
			seen.RoundTripMicros = micros
		}
		if took := now.Sub(m.at).Seconds(); took > 0 && info.received > m.received {
			of := int64(float64(info.received-m.received) / took)
			seen.DeliveryBytesPerSecond = max(seen.DeliveryBytesPerSecond, of)
			rate += of
		}
		m.received, m.at = info.received, now
		segments, retransmits = segments+info.segments, retransmits+info.retransmits
	}
	c.path.fastest = max(c.path.fastest, rate)
	seen.BufferBytes = seen.DeliveryBytesPerSecond * seen.RoundTripMicros / int64(time.Second/time.Microsecond)
	if segments > 0 {
		seen.RetransmitPermille = int64(1000 * retransmits / segments)
	}
	return seen, seen.Connections > 0
}
