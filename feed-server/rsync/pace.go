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
	// chunk is how much is written to a client at a time.
	chunk = 64 << 10
	// startTimeout is how long a client has to say which module it wants, and again how: the options, the names of what it
	// can do and the filter. It has more for what it sends of these, at leastPace. It gets its turn once all that is said.
	// BusyStart is startTimeout while others wait for their turn, and maxStart how many bytes it may send of each.
	startTimeout = 30 * time.Second
	busyStart    = 5 * time.Second
	maxStart     = 1 << 20
	// idleTimeout is how long a client may send nothing, and take nothing: it compares what it has. From protocol 31 on the
	// server states the timeout to the client, which then sends keep-alives.
	idleTimeout = 10 * time.Minute
	// aliveTimeout is how long a client may ask for nothing, and take nothing, while it sends keep-alives.
	aliveTimeout = time.Hour
	// leastRate is the lowest rate that --bwlimit has, in bytes a second.
	leastRate = 16 << 10
	// leastPace is how many bytes a second a client has to send or take on average while others wait: half of what a link of
	// 1 kB/s carries.
	leastPace = 512
	// grace is how long a client that has a turn is waited for while others wait. For what it sends and takes it is waited for
	// longer, at leastPace, but no longer than credit: then it gives way.
	grace  = 10 * time.Second
	credit = 30 * time.Second
	// turnPatience is how long a client waits for its turn: longer than one that has a turn and does nothing keeps it.
	turnPatience = time.Minute
	// lookEvery is how often it is asked whether others wait.
	lookEvery = time.Second
)

// errSlow: the client took too long, and is cut off.
var errSlow = errors.New("the client is too slow")

// slow is an errSlow with its cause, as the metrics spell it.
type slow struct{ cause, text string }

func (e *slow) Error() string { return errSlow.Error() + ": " + e.text }

func (e *slow) Is(target error) bool { return target == errSlow }

// Why a client is cut off.
var (
	errStarts = &slow{"Start", fmt.Sprintf("it did not say in %s (%s while others wait for their turn) what it wants", startTimeout, busyStart)}
	errCrowd  = &slow{"Memory", "options and filters of other clients that wait take all memory for these"}
	errNames  = &slow{"Names", "it sends the names of --files-from" + tooSlowly}
	errAsks   = &slow{"Requests", "it asks for files" + tooSlowly}
	errTakes  = &slow{"Takes", "it takes what it asked for" + tooSlowly}
	errSilent = &slow{"Silent", fmt.Sprintf("it sent nothing and took nothing for %s", idleTimeout)}
	errStalls = &slow{"Stalled", fmt.Sprintf("it neither asked for anything nor took anything for %s", aliveTimeout)}
)

var tooSlowly = fmt.Sprintf(" with less than %d bytes in a second, and others wait for their turn", leastPace)

// bounds are the bounds of a Server. Tests have shorter ones.
type bounds struct{ alive, grace, credit time.Duration }

var defaultBounds = bounds{aliveTimeout, grace, credit}

// pace measures how a client uses its turn: how long the server waits for it, and what comes of that.
type pace struct {
	bounds
	// silent is how long it was waited for since any byte of it came, still the same since anything came of it, and
	// spent how much of its time is used while others wait: less than nothing where it has earned more than grace.
	silent, still, spent time.Duration
	heard, moved         int64
}

// addWait records that a client was waited for, and for which of its duties. Heard are all bytes that came from it since
// the connection began. Moved are the bytes of names and requests, and of lists and files that it took, but not of
// keep-alives. Errors: errSlow, if the client is to be cut off.
func (p *pace) addWait(long time.Duration, heard, moved int64, wanted bool, duty *slow) error {
	p.silent += long
	p.still += long
	if heard > p.heard {
		p.heard, p.silent = heard, 0
	}
	if more := moved - p.moved; more > 0 {
		p.moved, p.still, p.silent = moved, 0, 0
		p.spent = max(p.grace-p.credit, p.spent-earned(more))
	}
	if wanted {
		p.spent += long
	}
	switch {
	case p.silent >= idleTimeout:
		return errSilent
	case p.still >= p.alive:
		return errStalls
	case wanted && p.spent >= p.grace:
		return duty
	}
	return nil
}

// earned is how long a client is waited for more, for some bytes.
func earned(bytes int64) time.Duration {
	return time.Duration(float64(time.Second) * float64(bytes) / leastPace)
}

// countWait records that the client was waited for since a time. Errors: errSlow.
func (s *session) countWait(since time.Time, duty *slow) error {
	taken := max(0, s.out.data-s.unwritten-s.kernel.queued()) // what a slow link has not carried yet is not taken
	return s.pace.addWait(time.Since(since), s.in.read.Load(), taken+s.in.data.Load(), s.turns.Wanted(), duty)
}

// patience is how long a read may take.
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
		if p.said += int64(n); p.said > maxStart {
			return n, malformed("more than %d bytes before the transfer", maxStart)
		}
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

// started gives back the memory of a start: from then on the memory of the transfer covers it.
func (s *session) started() {
	s.starts.Release(s.startHeld)
	s.startHeld = 0
}

// readNames reads as long as the client's pace allows it.
func (p patient) readNames(b []byte) (int, error) {
	for {
		since := time.Now()
		n, err := p.readBy(b, since.Add(lookEvery), nil)
		if err := p.countWait(since, errNames); err != nil {
			return 0, err
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// begins starts the time in which a client sends its request.
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

// paced writes to a client, which is waited for as its pace is.
type paced struct{ *session }

func (p paced) Write(b []byte) (written int, err error) {
	for written < len(b) && err == nil {
		part := b[written:min(len(b), written+chunk)]
		if p.limit != nil {
			if err := p.limit.WaitN(p.alive, len(part)); err != nil {
				return written, err
			}
		}
		p.unwritten = int64(len(b) - written)
		var n int
		n, err = p.writePart(part)
		written += n
	}
	p.unwritten, p.wrote = 0, time.Now()
	p.metrics.bytes.Add(float64(written))
	p.cfg.Admission.Traffic.Add(written)
	return written, err
}

func (p paced) writePart(part []byte) (written int, err error) {
	for written < len(part) {
		since := time.Now()
		if err := p.conn.SetWriteDeadline(since.Add(lookEvery)); err != nil {
			return written, ofClient(err)
		}
		n, err := p.conn.Write(part[written:])
		written += n
		p.unwritten -= int64(n)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return written, ofClient(err)
		}
		if err := p.countWait(since, errTakes); err != nil {
			return written, err
		}
	}
	return written, nil
}
