// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/wire"
)

// slowEnd is a client's end that takes so many bytes a second, and a kernel that holds
// 256 KiB for it.
type slowEnd struct {
	net.Conn
	held           chan []byte
	rest           []byte
	bytesPerSecond func() int
}

func newSlowEnd(c net.Conn, bytesPerSecond func() int) *slowEnd {
	e := &slowEnd{Conn: c, held: make(chan []byte, 64), bytesPerSecond: bytesPerSecond}
	go func() {
		defer close(e.held)
		for {
			b := make([]byte, 4<<10)
			n, err := c.Read(b)
			if err != nil {
				return
			}
			e.held <- b[:n]
		}
	}()
	return e
}

func (e *slowEnd) Read(b []byte) (int, error) {
	if len(e.rest) == 0 {
		rest, ok := <-e.held
		if !ok {
			return 0, io.EOF
		}
		e.rest = rest
	}
	n := copy(b, e.rest)
	e.rest = e.rest[n:]
	time.Sleep(time.Duration(n) * time.Second / time.Duration(e.bytesPerSecond()))
	return n, nil
}

// once listens to one connection.
type once struct {
	net.Listener
	conns chan net.Conn
}

func (o once) Accept() (net.Conn, error) {
	c, ok := <-o.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (o once) Close() error   { close(o.conns); return nil }
func (o once) Addr() net.Addr { return &net.TCPAddr{} }

// connected returns both ends of a WebSocket, whose client reads at a rate.
func connected(t *testing.T, bytesPerSecond func() int) (*socket, *websocket.Conn, chan error) {
	t.Helper()
	near, far := net.Pipe()
	ended := make(chan error, 10)
	accepted := make(chan *socket)
	release := make(chan struct{})
	listener := once{conns: make(chan net.Conn, 1)}
	server := &http.Server{ConnContext: endpoint.WithConnection, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			close(accepted)
			return
		}
		o := &socket{raw: endpoint.ConnectionOf(r), conn: conn, end: func(err error) { ended <- err }}
		go o.listen()
		accepted <- o
		<-release
		_ = conn.CloseNow()
	})}
	go func() { _ = server.Serve(listener) }()
	listener.conns <- far
	t.Cleanup(func() { close(release); _ = near.Close(); _ = far.Close(); _ = server.Close() })
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return newSlowEnd(near, bytesPerSecond), nil
	}}
	var o *socket
	got := make(chan struct{})
	go func() { o = <-accepted; close(got) }()
	client, _, err := websocket.Dial(t.Context(), "ws://feeds/", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	<-got
	client.SetReadLimit(-1)
	t.Cleanup(func() { _ = client.CloseNow() })
	return o, client, ended
}

// A client that is slow, but takes its messages in time, is not cut off because it is late to
// answer a ping behind them.
func TestPingWaitsForTheSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rate := 1 << 20
		o, client, ended := connected(t, func() int { return rate })
		rate = 3000
		places := make(chan int)
		go func() {
			defer close(places)
			for {
				if _, data, err := client.Read(t.Context()); err != nil {
					return
				} else if len(data) < 1000 {
					places <- len(data)
				}
			}
		}()
		if _, err := o.send(t.Context(), websocket.MessageBinary, func(p *pieces) { p.add(make([]byte, 256<<10)) }); err != nil {
			t.Fatal(err)
		}
		beats := 0
		go func() {
			for range places {
				beats++
			}
		}()
		for range 40 {
			time.Sleep(15 * time.Second)
			if _, err := o.beat(t.Context(), wire.FeedToken{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second) // the last answer comes
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("the client is cut: %v", err)
		default:
		}
		// Messages that go out meanwhile keep the connection open with whatever is between.
		if beats == 0 || beats > 10 || o.asks.Load() {
			t.Errorf("%d places were told; a ping is not answered: %v", beats, o.asks.Load())
		}
	})
}

// One that is idle, and does not answer, is found out.
func TestPingEndsTheSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, client, ended := connected(t, func() int { return 1 << 20 })
		_ = client // it never reads: no pong
		began := time.Now()
		for range 5 {
			if _, err := o.beat(t.Context(), wire.FeedToken{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-ended; err == nil || time.Since(began) != pingTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		synctest.Wait()
		if n := len(ended); n > 1 { // and that it is closed then
			t.Errorf("%d pings were on their way", n)
		}
	})
}
