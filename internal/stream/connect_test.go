// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/substorm/substorm/internal/testenv"
)

// heard is a log as lines.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
}

func (h *heard) Write(line []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(line)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// await waits until a text is in the log.
func (h *heard) await(t *testing.T, text string) {
	t.Helper()
	for range testenv.Attempts() {
		if strings.Contains(h.String(), text) {
			return
		}
	}
	t.Fatalf("%q is not told of:\n%s", text, h)
}

// TestLost: the log hears of a server that is lost, and of no connection that its program closes.
func TestLost(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	log := &heard{}
	closed := make(chan struct{})
	nc, err := Connect(t.Context(), Config{Servers: []string{server.URL()}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	server.Kill()
	log.await(t, "lost the connection to NATS")
	server.Start()
	if err := WaitConnected(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	nc.Close()
	<-closed // what is called for a connection is called in order
	if got := strings.Count(log.String(), "lost the connection to NATS"); got != 1 {
		t.Errorf("%d losses are told of, want 1:\n%s", got, log)
	}
}
