// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// greetingTime is how long the other side may take until it has agreed on a protocol, which takes it some hundred bytes: rsync's --timeout
// and --contimeout do not end one that sends them byte by byte. From then on it may be slow, as it is when it computes digests.
const greetingTime = 5 * time.Minute

// greetingArguments make rsync print on standard output that both sides agreed. They are not passed to the other side, which cannot print
// it in rsync's place.
var greetingArguments = []string{"--debug=PROTO", "--outbuf=L", "--no-motd"}

// agreed is what rsync says then.
var agreed = []byte("(Client) Protocol versions: ")

// errGreeting: the other side takes too long to greet.
var errGreeting = errors.New("the other side did not agree on a protocol")

// greeting passes on what rsync says, except for the line that says that both sides agreed. If that line does not come in time, it stops rsync.
type greeting struct {
	to    io.Writer
	timer *time.Timer
	// begun is the beginning of what rsync said, up to the end of its first line.
	begun []byte
	is    bool
}

// greet begins to wait for the other side. The context is canceled with errGreeting where it takes too long.
func greet(ctx context.Context, patience time.Duration, to io.Writer) (_ context.Context, _ *greeting, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if to == nil {
		to = io.Discard
	}
	g := &greeting{to: to, timer: time.AfterFunc(patience, func() {
		cancel(fmt.Errorf("%w within %s: ask its administrator what delays it", errGreeting, patience))
	})}
	return ctx, g, func() {
		g.timer.Stop()
		cancel(nil)
	}
}

// Write implements io.Writer.
func (g *greeting) Write(p []byte) (int, error) {
	if g.is {
		return g.to.Write(p)
	}
	g.begun = append(g.begun, p...)
	line, rest, whole := bytes.Cut(g.begun, []byte("\n"))
	if !whole && bytes.HasPrefix(agreed, line[:min(len(line), len(agreed))]) {
		return len(p), nil
	}
	g.is = true
	g.timer.Stop()
	if !bytes.HasPrefix(line, agreed) { // it has gone on all the same
		rest = g.begun
	}
	g.begun = nil
	if _, err := g.to.Write(rest); err != nil {
		return 0, err
	}
	return len(p), nil
}
