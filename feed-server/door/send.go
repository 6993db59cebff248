// SPDX-License-Identifier: Apache-2.0

package door

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/tree"
)

const (
	// chunk is what a client has chunkTimeout for.
	chunk        = 64 << 10
	chunkTimeout = 30 * time.Second
)

// ErrClient: the client went away, or takes nothing.
var ErrClient = errors.New("the client does not take what it asked for")

// Send gives a client some bytes, and time for them. Errors: ErrClient.
func (v *Visit) Send(p []byte) error {
	control := http.NewResponseController(v.W)
	for len(p) > 0 {
		n := min(len(p), 4*chunk)
		_ = control.SetWriteDeadline(time.Now().Add(chunkTimeout * time.Duration(n/chunk+1)))
		if _, err := v.W.Write(p[:n]); err != nil {
			return fmt.Errorf("%w: %w", ErrClient, err)
		}
		p = p[n:]
	}
	return nil
}

// Flush sends what was written, and gives a client time for it. Errors: ErrClient.
func (v *Visit) Flush() error {
	control := http.NewResponseController(v.W)
	_ = control.SetWriteDeadline(time.Now().Add(chunkTimeout)) // the last one may be over: nothing was sent for a while
	if err := control.Flush(); err != nil {
		return fmt.Errorf("%w: %w", ErrClient, err)
	}
	return nil
}

// Finish ends an answer whose head is written; err is why it is not whole. Such a one
// is cut off, so that the client sees that it is not.
func (v *Visit) Finish(what string, err error) {
	if err == nil {
		if err = v.Flush(); err == nil {
			_ = http.NewResponseController(v.W).SetWriteDeadline(time.Time{}) // the connection may be used again, and by others
			return
		}
	}
	if !errors.Is(err, ErrClient) && v.Context().Err() == nil {
		if errors.Is(err, tree.ErrDamaged) || errors.Is(err, objectstore.ErrNotFound) {
			v.Damaged(v.about, err)
		}
		v.gate.cfg.Logger.Warn("an answer is cut off: the archive cannot be read", "path", what, "error", err)
	}
	panic(http.ErrAbortHandler)
}

// Paced is Send as an io.Writer.
type Paced struct{ *Visit }

// Write implements io.Writer.
func (p Paced) Write(b []byte) (int, error) {
	if err := p.Send(b); err != nil {
		return 0, err
	}
	return len(b), nil
}
