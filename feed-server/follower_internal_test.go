// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/substorm/substorm/internal/wire"
)

// follower reads a live answer: Server-Sent Events or a WebSocket.
type follower struct {
	t    testing.TB
	path string

	mu   sync.Mutex
	has  strings.Builder
	over error
	// more is closed when there is more, or the answer is over.
	more chan struct{}
}

// follow begins to read a live endpoint.
func (l *endpointsLab) follow(path, who string) *follower {
	l.t.Helper()
	f := &follower{t: l.t, path: path + ", " + who, more: make(chan struct{})}
	ctx, stop := context.WithCancel(l.t.Context())
	ended := make(chan struct{})
	open := l.events
	if strings.Contains(path, "/ws?") {
		open = l.socket
	}
	read := open(ctx, path, who)
	go func() {
		defer close(ended)
		for err := error(nil); err == nil; {
			var part []byte
			part, err = read()
			f.add(part, err)
		}
	}()
	l.t.Cleanup(func() { stop(); <-ended })
	return f
}

// events reads Server-Sent Events, part by part.
func (l *endpointsLab) events(ctx context.Context, path, who string) func() ([]byte, error) {
	l.t.Helper()
	resp := l.request(ctx, http.MethodGet, path, who)
	l.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		l.t.Fatalf("%s, %s: %s", path, who, resp.Status)
	}
	part := make([]byte, 4<<10)
	return func() ([]byte, error) {
		n, err := resp.Body.Read(part)
		return part[:n], err
	}
}

// socket reads a WebSocket, message by message.
func (l *endpointsLab) socket(ctx context.Context, path, who string) func() ([]byte, error) {
	l.t.Helper()
	header := http.Header{}
	if who != anonymous {
		header.Set("Authorization", "Bearer "+who+"-token")
	}
	conn, _, err := websocket.Dial(ctx, "ws://"+l.address()+path, &websocket.DialOptions{Subprotocols: []string{wire.SubprotocolJSON}, HTTPHeader: header})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.CloseNow() })
	return func() ([]byte, error) {
		_, message, err := conn.Read(ctx)
		return message, err
	}
}

func (f *follower) add(part []byte, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.has.Write(part)
	f.over = err
	close(f.more)
	f.more = make(chan struct{})
}

// text is all that came.
func (f *follower) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.has.String()
}

// until waits for a text.
func (f *follower) until(text string) {
	f.t.Helper()
	end := time.NewTimer(3 * time.Minute)
	defer end.Stop()
	for {
		f.mu.Lock()
		has, over, more := f.has.String(), f.over, f.more
		f.mu.Unlock()
		switch {
		case strings.Contains(has, text):
			return
		case over != nil:
			f.t.Fatalf("%s: ends before %q: %v: %s", f.path, text, over, has)
		}
		select {
		case <-more:
		case <-end.C:
			f.t.Fatalf("%s: %q does not come: %s", f.path, text, has)
		}
	}
}
