// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"io"
	"time"
)

const (
	// defaultSilence is how long a gateway may take nothing of an object.
	defaultSilence = 2 * time.Minute
	// slowest is the rate, in bytes a second, at which a gateway still waits for its store to copy
	// an object from where its parts came together to its own key, which comes after the last
	// byte of the body and before the receipt. A gateway that is stuck is replaced before that,
	// which ends the connection.
	slowest = 1 << 20
)

// errSilent: a gateway takes nothing.
var errSilent = errors.New("it takes nothing of the object, or does not answer")

// sending is the body of a request. It cancels the request where the gateway takes nothing of it for
// silence, or has all of it and does not answer for as long as its store may need.
type sending struct {
	io.ReadCloser
	// size of the object, or 0 if unknown, and how much of it was read.
	size, read int64
	silence    time.Duration
	timer      *time.Timer
}

func newSending(body io.ReadCloser, size int64, silence time.Duration, cancel context.CancelCauseFunc) *sending {
	s := &sending{ReadCloser: body, size: size, silence: silence, timer: time.AfterFunc(silence, func() { cancel(errSilent) })}
	s.timer.Stop() // a request may wait for a connection first, as long as it must
	return s
}

// Read implements io.Reader. It is called when what was read before is on its way.
func (s *sending) Read(p []byte) (int, error) {
	s.timer.Stop()
	n, err := s.ReadCloser.Read(p)
	s.read += int64(n)
	patience := s.silence
	if err != nil || s.read >= s.size {
		patience += time.Duration(s.read/slowest) * time.Second
	}
	s.timer.Reset(patience)
	return n, err
}
