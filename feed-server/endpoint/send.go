// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
)

const (
	// chunk is what a client has chunkTimeout for, and busyTimeout while others wait for a
	// turn such as its answer has: that is 35 kbit/s, which a link of 64 kbit/s can keep.
	chunk        = 64 << 10
	chunkTimeout = 30 * time.Second
	busyTimeout  = 15 * time.Second
)

var (
	// ErrClient: the client went away, or takes nothing.
	ErrClient = errors.New("the client does not read the response")
	// ErrOver: what is being sent is not for the client any more.
	ErrOver = errors.New("the client may no longer read this response")
)

// Send gives a client some bytes, and time for them, as long as it may read the
// instrument that it asks for. Errors: ErrClient, ErrOver.
func (v *Request) Send(p []byte) error {
	for len(p) > 0 {
		if v.about != "" {
			if _, err := v.Still(v.about); err != nil {
				return err
			}
		}
		n, timeout := v.portion(len(p))
		if err := v.writeWithin(timeout, func(*http.ResponseController) error {
			_, err := v.W.Write(p[:n])
			return err
		}); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// portion is how much of so many bytes is sent at once, and how long a client has for it.
func (v *Request) portion(bytes int) (n int, timeout time.Duration) {
	if v.turns != nil && v.turns.Wanted() {
		return min(bytes, chunk), busyTimeout
	}
	n = min(bytes, 4*chunk)
	return n, chunkTimeout * time.Duration((n+chunk-1)/chunk)
}

// Flush sends what was written, and gives a client time for it. Errors: ErrClient.
func (v *Request) Flush() error {
	// The last deadline may be over: nothing was sent for a while.
	return v.writeWithin(chunkTimeout, (*http.ResponseController).Flush)
}

// writeWithin gives a client so long to take what write writes. A client that takes longer is counted once.
func (v *Request) writeWithin(timeout time.Duration, write func(*http.ResponseController) error) error {
	control := http.NewResponseController(v.W)
	deadline := time.Now().Add(timeout)
	_ = control.SetWriteDeadline(deadline)
	err := write(control)
	if err == nil {
		return nil
	}
	late := errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(deadline) // HTTP/2 does not say so
	if late && !v.slow {
		v.slow = true
		v.check.metrics.slow.WithLabelValues(v.class.String()).Inc()
		v.check.cfg.Logger.Info("aborting a response: the client reads less than 64 KiB in 30 s (15 s while others wait for their turn)",
			"path", v.URL.Path, "remote", v.RemoteAddr, "reader", v.Reader.String())
	}
	return fmt.Errorf("%w: %w", ErrClient, err)
}

// Finish ends an answer whose head is written; err is why it is not whole. Such a one
// is cut off, so that the client sees that it is not.
func (v *Request) Finish(what string, err error) {
	if err == nil {
		if err = v.Flush(); err == nil {
			_ = http.NewResponseController(v.W).SetWriteDeadline(time.Time{}) // the connection may be used again, and by others
			return
		}
	}
	switch {
	case errors.Is(err, ErrClient), v.Context().Err() != nil:
	case errors.Is(err, ErrOver):
		v.check.cfg.Logger.Info("aborting a response: the reader may no longer read the rest of it", "path", what, "reader", v.Reader.String())
	default:
		if errors.Is(err, objectpath.ErrDamaged) || errors.Is(err, objectstore.ErrNotFound) {
			v.Damaged(v.about, err)
		}
		v.check.cfg.Logger.Warn("aborting a response: cannot read the archive", "path", what, "error", err)
	}
	panic(http.ErrAbortHandler)
}

// Paced is Send as an io.Writer.
type Paced struct{ *Request }

// Write implements io.Writer.
func (p Paced) Write(b []byte) (int, error) {
	if err := p.Send(b); err != nil {
		return 0, err
	}
	return len(b), nil
}
