// SPDX-License-Identifier: Apache-2.0

package https

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errSilent: the other side sent nothing for as long as it may.
var errSilent = fmt.Errorf("%w: nothing came for %s", ErrBroken, silence)

// watched is the body of an answer. Where nothing comes for too long it cancels the request,
// so that a link that is gone without a word holds nobody up.
type watched struct {
	io.ReadCloser
	timer    *time.Timer
	received func(int)
}

func newWatched(body io.ReadCloser, cancel context.CancelCauseFunc, received func(int)) *watched {
	return &watched{body, time.AfterFunc(silence, func() { cancel(errSilent) }), received}
}

// Read implements io.Reader. The time in which the reader does something else does not count.
func (w *watched) Read(p []byte) (int, error) {
	w.timer.Reset(silence)
	n, err := w.ReadCloser.Read(p)
	w.timer.Stop()
	if n > 0 && w.received != nil {
		w.received(n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return n, err
}

// Close implements io.Closer.
func (w *watched) Close() error {
	w.timer.Stop()
	return w.ReadCloser.Close()
}
