// SPDX-License-Identifier: Apache-2.0

package stamp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"golang.org/x/time/rate"
)

// The limits of the answers: sessionRate packets a second for each session, totalRate for all of them. At most maxSessions sessions are
// remembered, which takes some 1 MiB.
const (
	sessionRate  = int(time.Second / MinInterval)
	sessionBurst = 2 * sessionRate
	totalRate    = 5000
	maxSessions  = 4096
	// idleSession is when a session is forgotten.
	idleSession = 15 * time.Minute
)

// Verdict says what became of a packet.
type Verdict string

// The verdicts.
const (
	Reflected     Verdict = "Reflected"
	Malformed     Verdict = "Malformed"     // no packet of the protocol
	UnknownSender Verdict = "UnknownSender" // from an address that no instrument sends from
	RateLimited   Verdict = "RateLimited"   // more than is answered
	Unsent        Verdict = "Unsent"        // the system did not take the answer
)

// Verdicts are all there are.
func Verdicts() []Verdict { return []Verdict{Reflected, Malformed, UnknownSender, RateLimited, Unsent} }

// ReflectorConfig says who is answered.
type ReflectorConfig struct {
	// Knows says whether an address is answered. It is called at most totalRate times a second.
	Knows func(netip.Addr) bool
	// Count, where set, gets what became of each packet.
	Count  func(Verdict)
	Logger *slog.Logger
}

// Reflector answers packets, each with one of Size bytes: never more than it got.
// It counts its answers by session: the addresses and ports of both ends.
type Reflector struct {
	cfg   ReflectorConfig
	conn  *socket
	total *rate.Limiter
	// each is how much is answered of a session.
	each     rate.Limit
	sessions map[sessionKey]*session
}

type sessionKey struct{ from, to netip.AddrPort }

type session struct {
	next  uint32
	limit *rate.Limiter
	last  time.Time
}

// ListenReflector opens a UDP port of all addresses, or of one.
func ListenReflector(address string, cfg ReflectorConfig) (*Reflector, error) {
	conn, err := listen(address)
	if err != nil {
		return nil, fmt.Errorf("reflector: %w", err)
	}
	return newReflector(conn, cfg), nil
}

func newReflector(conn *socket, cfg ReflectorConfig) *Reflector {
	if cfg.Count == nil {
		cfg.Count = func(Verdict) {}
	}
	return &Reflector{cfg: cfg, conn: conn, total: rate.NewLimiter(totalRate, totalRate), each: rate.Limit(sessionRate), sessions: map[sessionKey]*session{}}
}

// Address is where it listens.
func (r *Reflector) Address() netip.AddrPort {
	return r.conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// Run answers until ctx ends. A nil Reflector answers nothing.
func (r *Reflector) Run(ctx context.Context) error {
	if r == nil {
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = r.conn.Close() })()
	defer r.conn.Close()
	in, out := make([]byte, 2048), make([]byte, 0, Size)
	for said := ""; ; {
		p, err := r.conn.receive(in)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			if err.Error() != said { // an ICMP word about an earlier answer, say
				said = err.Error()
				r.cfg.Logger.Warn("cannot read packets that measure the path", "error", err)
			}
			continue
		}
		out = out[:0]
		verdict := r.reflect(p, time.Now(), &out)
		if verdict == Reflected && r.conn.answer(out, p) != nil {
			verdict = Unsent
		}
		r.cfg.Count(verdict)
	}
}

// received is a packet as it came.
type received struct {
	payload []byte
	from    netip.AddrPort
	// to is our address; zero where the system does not tell.
	to netip.Addr
	// zone is the interface of a link-local address; 0 for others.
	zone int
	at   time.Time
	// ttl is 0 where the system does not tell.
	ttl uint8
}

// reflect writes the answer to a packet, if it gets one.
func (r *Reflector) reflect(p received, now time.Time, out *[]byte) Verdict {
	request, err := ParseRequest(p.payload)
	if err != nil {
		return Malformed
	}
	if !r.total.AllowN(now, 1) {
		return RateLimited
	}
	if !r.cfg.Knows(p.from.Addr().Unmap().WithZone("")) {
		return UnknownSender
	}
	s := r.session(sessionKey{p.from, netip.AddrPortFrom(p.to, 0)}, now)
	if !s.limit.AllowN(now, 1) {
		return RateLimited
	}
	*out = Reply{
		Sequence: s.next, Received: TimestampOf(p.at), Request: request, TTL: p.ttl,
		Error: unknownError, Sent: TimestampOf(now),
	}.Append(*out)
	s.next++
	return Reflected
}

// session returns the session of a packet; it makes a new one if there is none.
func (r *Reflector) session(key sessionKey, now time.Time) *session {
	s := r.sessions[key]
	if s == nil {
		if len(r.sessions) >= maxSessions {
			r.forget(now)
		}
		s = &session{limit: rate.NewLimiter(r.each, sessionBurst)}
		r.sessions[key] = s
	}
	s.last = now
	return s
}

// forget makes space for a quarter of the sessions: the sessions that were silent longest are dropped, and if all are alive, any. The
// count of a dropped session restarts, which the other end sees.
func (r *Reflector) forget(now time.Time) {
	const keep = maxSessions * 3 / 4
	for silent := idleSession; len(r.sessions) > keep; silent /= 4 {
		for key, s := range r.sessions {
			if now.Sub(s.last) > silent || silent < MinInterval && len(r.sessions) > keep {
				delete(r.sessions, key)
			}
		}
	}
}
