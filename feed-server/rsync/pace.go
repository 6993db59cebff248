// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/time/rate"
)

const (
	// chunk is what a client has chunkTimeout for: 35 kbit/s, as over HTTP. BusyTimeout is
	// that while others wait for their turn.
	chunk        = 64 << 10
	chunkTimeout = 30 * time.Second
	busyTimeout  = 15 * time.Second
	// startTimeout is how long a client has to say which module it wants, and again how: the options, the names of what it
	// can do and the filter. For each chunk of these it has chunkTimeout besides. It gets its turn once all that is said.
	// BusyStart is startTimeout while others wait for their turn.
	startTimeout = 30 * time.Second
	busyStart    = 5 * time.Second
	// idleTimeout is how long a client may send nothing, while nothing is sent to it: it
	// compares what it has. From protocol 31 on it is told so, and then it says in between
	// that it is alive.
	idleTimeout = 10 * time.Minute
	// stallTimeout is how long a client may ask for nothing, and take nothing, while others wait for their turn; also
	// if it says that it is alive. AliveTimeout is that while nobody waits.
	stallTimeout = 2 * time.Minute
	aliveTimeout = time.Hour
	// leastRate is the lowest rate that --bwlimit has, in bytes a second: four times what counts as too slow while others wait.
	leastRate = 16 << 10
	// credit is how long a client may be waited for in all while others wait. It earns chunkTimeout for each chunk that
	// it sends or takes, up to that.
	credit = 10 * time.Minute
	// lookEvery is how often it is asked whether others wait: much less than they wait (endpoint.TurnPatience).
	lookEvery = time.Second
)

// Why a client is cut off that takes too long: all of them are errSlow.
var (
	errSlow   = errors.New("the client is too slow")
	errTakes  = fmt.Errorf("%w: it takes less than 64 KiB in %s (%s while others wait for their turn)", errSlow, chunkTimeout, busyTimeout)
	errStarts = fmt.Errorf("%w: it did not say in %s (%s while others wait for their turn) what it wants", errSlow, startTimeout, busyStart)
	errCrowd  = fmt.Errorf("%w: options and filters of other clients that wait take all memory for these", errSlow)
	errSilent = fmt.Errorf("%w: it sent nothing for %s", errSlow, idleTimeout)
	errStalls = fmt.Errorf("%w: it neither asked for anything nor took anything for %s while others waited for their turn (%s while nobody did)", errSlow, stallTimeout, aliveTimeout)
	errHolds  = fmt.Errorf("%w: it sent and took less than 64 KiB in %s on average, for more than %s, while others waited for their turn", errSlow, chunkTimeout, credit)
)

// bounds are those of a Server. Tests have shorter ones.
type bounds struct{ stall, alive, credit time.Duration }

var defaultBounds = bounds{stallTimeout, aliveTimeout, credit}

// pace measures how a client uses its turn. What counts is how long the server waits for it, and what comes of that.
type pace struct {
	bounds
	// silent is how long it was waited for since any byte of it came, still the same since anything came of it, and
	// spent how much of its credit is used.
	silent, still, spent time.Duration
	heard, moved         int64
}

// waited says that a client was waited for. Heard are all bytes that came from it since the connection began. Moved are
// those of names and requests, and those of lists and files that it took: not those that only say that the connection
// is alive. Errors: errSlow, where the client is to be cut off.
func (p *pace) waited(long time.Duration, heard, moved int64, wanted bool) error {
	p.silent += long
	p.still += long
	if heard > p.heard {
		p.heard, p.silent = heard, 0
	}
	if more := moved - p.moved; more > 0 {
		p.moved, p.still, p.silent = moved, 0, 0
		p.spent = max(0, p.spent-earned(more))
	}
	p.spent = min(p.credit, p.spent+long)
	switch {
	case p.silent >= idleTimeout:
		return errSilent
	case p.still >= p.alive, wanted && p.still >= p.stall:
		return errStalls
	case wanted && p.spent >= p.credit:
		return errHolds
	}
	return nil
}

// earned is how long a client may take for some bytes.
func earned(bytes int64) time.Duration {
	return time.Duration(float64(chunkTimeout) * float64(bytes) / chunk)
}

// waits says that the client was waited for since a time. Errors: errSlow.
func (s *session) waits(since time.Time) error {
	taken := max(0, s.out.data-s.kernel.queued()) // what a slow link has not carried yet is not taken
	return s.pace.waited(time.Since(since), s.in.read.Load(), taken+s.in.data.Load(), s.turns.Wanted())
}

// patience says how long a read may take.
type patience int

const (
	// starting: all that the client says has startTimeout together.
	starting patience = iota
	// naming: it sends the names of --files-from, as its pace is.
	naming
	// asking: reads are beside the answers. The client's pace is looked at where it is waited for (transfer.await).
	asking
)

// patient reads from a client, which has some time for it.
type patient struct{ *session }

func (p patient) Read(b []byte) (n int, err error) {
	switch p.patience {
	case starting:
		n, err = p.readStart(b)
	case naming:
		n, err = p.readNames(b)
	default:
		n, err = p.readBy(b, time.Time{}, nil)
	}
	p.kernel.acknowledge()
	return n, err
}

// readBy reads, and returns an error if nothing comes by a time; the zero time is never.
func (p patient) readBy(b []byte, deadline time.Time, late error) (int, error) {
	if err := p.readUntil(deadline, false); err != nil {
		return 0, ofClient(err)
	}
	n, err := p.conn.Read(b)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, late
	}
	return n, ofClient(err)
}

// readStart reads what comes before the turn, as long as the client may take for it.
func (p patient) readStart(b []byte) (int, error) {
	for {
		limit := startTimeout
		if p.turns.Wanted() {
			limit = busyStart
		}
		end := p.began.Add(limit + earned(p.said))
		now := time.Now()
		if !now.Before(end) {
			return 0, errStarts
		}
		if look := now.Add(lookEvery); look.Before(end) {
			end = look
		}
		n, err := p.readBy(b, end, nil)
		p.said += int64(n)
		if err == nil {
			err = p.reserve()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// reserve takes memory for a long start. Errors: errCrowd.
func (p patient) reserve() error {
	more := p.said - smallStart - p.startHeld
	if more <= 0 {
		return nil
	}
	if !p.starts.TryAcquire(more) {
		return errCrowd
	}
	p.startHeld += more
	return nil
}

// started gives back the memory of a start: from then on that of the transfer has it.
func (s *session) started() {
	s.starts.Release(s.startHeld)
	s.startHeld = 0
}

// readNames reads as long as the client's pace allows it.
func (p patient) readNames(b []byte) (int, error) {
	for {
		since := time.Now()
		n, err := p.readBy(b, since.Add(lookEvery), nil)
		if err := p.waits(since); err != nil {
			return 0, err
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// begins has the time begin in which a client says what it wants.
func (s *session) begins() { s.patience, s.began, s.said = starting, time.Now(), 0 }

// clientError is why nothing comes from a client, or goes to it.
type clientError struct{ error }

func (e *clientError) Unwrap() error { return e.error }

// errGone: the client has closed its side of the connection, which no rsync does before it has all.
var errGone = ofClient(io.ErrUnexpectedEOF)

func ofClient(err error) error {
	if err == nil {
		return nil
	}
	return &clientError{err}
}

// interrupt ends a read, and lets no other begin.
func (s *session) interrupt() { _ = s.readUntil(time.Now(), true) }

func (s *session) readUntil(deadline time.Time, last bool) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.interrupted {
		return os.ErrDeadlineExceeded
	}
	s.interrupted = last
	return s.conn.SetReadDeadline(deadline)
}

// limiter holds a client to the rate that it asks for; nil: it asks for none.
func (o *options) limiter() *rate.Limiter {
	if o.bytesPerSecond == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(max(o.bytesPerSecond, leastRate)), chunk)
}

// paced writes to a client, which has some time for each part.
type paced struct{ *session }

func (p paced) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		part, timeout := b[written:min(len(b), written+chunk)], chunkTimeout
		if p.limit != nil {
			if err := p.limit.WaitN(p.alive, len(part)); err != nil {
				return written, err
			}
		}
		if p.turns.Wanted() {
			timeout = busyTimeout
		}
		if err := p.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return written, ofClient(err)
		}
		before := p.given - p.kernel.queued()
		n, err := p.conn.Write(part)
		written += n
		p.given += int64(n)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if p.given-p.kernel.queued()-before >= chunk { // the kernel asks for more only when half of what it holds is sent
				continue
			}
			return written, errTakes
		}
		if err != nil {
			return written, ofClient(err)
		}
	}
	p.wrote = time.Now()
	p.metrics.bytes.Add(float64(written))
	p.cfg.Admission.Traffic.Add(written)
	return written, nil
}
