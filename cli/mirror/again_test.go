// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mirror_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/substorm/substorm/cli/mirror"
)

// until ends a context once something was written that has a text.
type until struct {
	text string
	end  context.CancelFunc

	mu  sync.Mutex
	all strings.Builder
}

func (u *until) Write(b []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all.Write(b)
	if strings.Contains(u.all.String(), u.text) {
		u.end()
	}
	return len(b), nil
}

// TestPullSaysWhyItWaits: why nothing comes is said at the first failure, and not after all tries.
func TestPullSaysWhyItWaits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close() // nothing listens there now
	ctx, end := context.WithCancel(t.Context())
	defer end()
	messages := &until{text: "connection refused: it is asked again", end: end}
	cmd := mirror.Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"pull", "http://" + address, t.TempDir()})
	cmd.SetOut(io.Discard)
	cmd.SetErr(messages)
	if err := cmd.ExecuteContext(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("%v; it said:\n%s", err, messages.all.String())
	}
}
