// SPDX-License-Identifier: Apache-2.0

package https

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptrace"
	"time"
)

// Patience is how slow the other side may be. A field that is 0 has the program's default.
type Patience struct {
	// Silence is how long it may send nothing; by default a minute.
	Silence time.Duration
	// Credit is how long an answer may be waited for in all, and LeastRate what comes of it in the time by which that grows, in bytes a
	// second; by default five minutes, and a second more for each KiB. A connection that is slower moves 64 KiB in a minute: a feed
	// server ends one of half that rate itself. So an answer that comes byte by byte does not hold up the run for long.
	Credit    time.Duration
	LeastRate int64
	// Tries of a request; by default 6.
	Tries int
}

func (p Patience) orDefault() Patience {
	return Patience{Silence: cmp.Or(p.Silence, time.Minute), Credit: cmp.Or(p.Credit, 5*time.Minute), LeastRate: cmp.Or(p.LeastRate, 1<<10), Tries: cmp.Or(p.Tries, 6)}
}

func (p Patience) silent() error { return fmt.Errorf("%w: nothing came for %s", ErrBroken, p.Silence) }

func (p Patience) slow() error {
	return fmt.Errorf("%w: waited longer than %s, and less than %d bytes came in a second", ErrBroken, p.Credit, p.LeastRate)
}

// left is how much of its credit an answer has once it was waited for again, and so many bytes came.
func (p Patience) left(left, waited time.Duration, came int) time.Duration {
	earned := time.Duration(float64(time.Second) * float64(came) / float64(p.LeastRate))
	return min(p.Credit, left-waited+earned)
}

// watched is the body of an answer. If nothing comes for too long, or too little, it cancels the request, so that a link that broke
// without notice does not hold up the run.
type watched struct {
	io.ReadCloser
	Patience
	silence, slowness *time.Timer
	// credit is what is left of it.
	credit   time.Duration
	received func(int)
}

func newWatched(body io.ReadCloser, p Patience, cancel context.CancelCauseFunc, received func(int)) *watched {
	w := &watched{ReadCloser: body, Patience: p, credit: p.Credit, received: received}
	w.silence = time.AfterFunc(p.Silence, func() { cancel(p.silent()) })
	w.slowness = time.AfterFunc(p.Credit, func() { cancel(p.slow()) })
	return w
}

// Read implements io.Reader. The time in which the reader does something else does not count.
func (w *watched) Read(p []byte) (int, error) {
	begun := time.Now()
	w.silence.Reset(w.Silence)
	w.slowness.Reset(w.credit)
	n, err := w.ReadCloser.Read(p)
	w.stop()
	w.credit = w.left(w.credit, time.Since(begun), n)
	if n > 0 && w.received != nil {
		w.received(n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return n, err
}

func (w *watched) stop() {
	w.silence.Stop()
	w.slowness.Stop()
}

// Close implements io.Closer.
func (w *watched) Close() error {
	w.stop()
	return w.ReadCloser.Close()
}

// watchAnswer cancels a request whose answer does not begin in time once it has a connection. The transport bounds each head; the client
// reads the body of a redirect, which is not watched otherwise.
func (p Patience) watchAnswer(ctx context.Context, cancel context.CancelCauseFunc) (_ context.Context, begins func()) {
	timer := time.AfterFunc(p.Silence, func() { cancel(p.silent()) })
	timer.Stop()
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { timer.Stop() }, // it may wait for one as long as it must
		GotConn: func(httptrace.GotConnInfo) { timer.Reset(2 * p.Silence) },
	}), func() { timer.Stop() }
}
