// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/registry"
)

// small is a listener whose connections have little space, and no time for what is written.
type small struct{ net.Listener }

func (l small) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return hurried{c}, c.(*net.TCPConn).SetWriteBuffer(4 << 10)
}

type hurried struct{ net.Conn }

func (c hurried) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() {
		t = time.Now().Add(50 * time.Millisecond)
	}
	return c.Conn.SetWriteDeadline(t)
}

// A client that takes nothing is cut off, and counted once.
func TestSlow(t *testing.T) {
	t.Parallel()
	g := NewAccessCheck(AccessCheckConfig{Registry: func() *registry.Snapshot { return &registry.Snapshot{} }, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	ended := make(chan error, 1)
	server := httptest.NewUnstartedServer(g.Answer(func(v *Request) *problem.Problem {
		err := v.Send(make([]byte, 64<<20))
		ended <- err
		v.Finish(v.URL.Path, err)
		return nil
	}))
	server.Listener = small{server.Listener}
	server.Start()
	t.Cleanup(server.Close)
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, ErrClient) {
		t.Errorf("%v", err)
	}
	server.Close()
	if n := testutil.ToFloat64(g.metrics.slow.WithLabelValues("Robot")); n != 1 {
		t.Errorf("%v are counted", n)
	}
}
