// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// writeTimeout is how long a client may take for what is written at a time.
	writeTimeout = 30 * time.Second
	// pingTimeout is how long a client may take to answer a ping.
	pingTimeout = 30 * time.Second
	// takenWithin is how long a client may take for what the kernel holds for it.
	takenWithin = 2 * endpoint.SendBuffer / writtenAtOnce * writeTimeout
	// lastWrite is how long it has for what was begun when the connection is to end,
	// and closeTimeout to say that it agrees.
	lastWrite    = 2 * time.Second
	closeTimeout = 5 * time.Second
)

// serveWebSocket answers GET /feeds/{feed}/ws.
func (s *Server) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	a, p := s.authorize(r, wire.DeliveryWebSocket)
	if p != nil {
		s.refuse(w, r, p)
		return
	}
	out := &socket{raw: endpoint.ConnectionOf(r)}
	c, p := s.connect(r, a, r.URL.Query().Get("resume"), out.write)
	if p != nil {
		s.refuse(w, r, p)
		return
	}
	defer s.leave(c)
	endpoint.Narrow(r)
	var err error
	out.conn, err = websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{wire.SubprotocolBinary, wire.SubprotocolJSON},
		// Pages of other sites are let in, unless the browser alone identifies the client.
		InsecureSkipVerify: !a.who.Ambient,
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		s.cfg.Logger.Debug("cannot open a WebSocket", "consumer", a.selection.Consumer.Consumer, "remote", r.RemoteAddr, "error", err)
		return // Accept has answered
	}
	out.text = out.conn.Subprotocol() != wire.SubprotocolBinary
	out.end = c.cancel
	go out.listen()
	// A write that the client does not take ends when the connection is to.
	stop := context.AfterFunc(c.ctx, func() { _ = out.raw.SetWriteDeadline(time.Now().Add(lastWrite)) })
	defer stop()
	err = c.session.Run(c.ctx)
	if cause := context.Cause(c.ctx); cause != nil {
		err = cause
	}
	out.close(err)
	s.ended(c, r, err)
}

// closing is the status and the reason with which a connection is closed.
func closing(err error) (websocket.StatusCode, string) {
	switch {
	case errors.Is(err, errDraining), errors.Is(err, errChanged):
		return websocket.StatusServiceRestart, err.Error()
	case errors.Is(err, errGone), errors.Is(err, errRevoked), errors.Is(err, errTalks):
		return websocket.StatusPolicyViolation, err.Error()
	default:
		return websocket.StatusInternalError, "the connection failed: connect again"
	}
}

// socket writes to one client.
type socket struct {
	// raw is the underlying connection: it has the deadlines, which cost less than contexts.
	raw  net.Conn
	conn *websocket.Conn
	text bool
	end  context.CancelCauseFunc
	// told is the place that was sent to the client last.
	told wire.FeedToken
	// taken is when the slowest client would have taken all that was written.
	taken time.Time
	// asks: a ping is not answered yet.
	asks atomic.Bool
}

// listen answers pings until the connection is closed, and ends it when the client
// closes it or sends a message.
func (o *socket) listen() {
	_, _, err := o.conn.Reader(context.Background())
	if err == nil {
		err = errTalks
	}
	o.end(err)
}

// close says why, and waits a while for the client to have heard it.
func (o *socket) close(why error) {
	cut := time.AfterFunc(closeTimeout, func() { _ = o.raw.Close() })
	defer cut.Stop()
	_ = o.conn.Close(closing(why))
}

func (o *socket) write(ctx context.Context, entries []session.Entry, place wire.FeedToken) (int, error) {
	bytes, err := 0, error(nil)
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case len(entries) == 0:
		bytes, err = o.beat(ctx, place)
	case o.text:
		for _, e := range entries {
			n, sent := o.send(ctx, websocket.MessageText, func(p *pieces) { p.text(e, e.Token.String()) })
			if bytes += n; sent != nil {
				err = sent
				break
			}
		}
	default:
		bytes, err = o.send(ctx, websocket.MessageBinary, func(p *pieces) { p.binary(entries, place.String()) })
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errSlow
	}
	o.told = place
	return bytes, err
}

// beat sends a place to a client that was sent nothing for a while, if the place has changed, and
// pings it. A client that may still be taking earlier bytes is not pinged, as the ping would wait
// behind them; it gets its place again.
func (o *socket) beat(ctx context.Context, place wire.FeedToken) (bytes int, err error) {
	// Pings and pongs are written under the same deadline, which may be over.
	if err := setDeadline(ctx, o.raw); err != nil {
		return 0, err
	}
	busy := time.Now().Before(o.taken)
	if !busy && o.asks.CompareAndSwap(false, true) {
		go o.ask()
	}
	switch {
	case place == o.told && !busy:
		return 0, nil
	case o.text:
		return o.send(ctx, websocket.MessageText, func(p *pieces) { p.place(place.String()) })
	default:
		return o.send(ctx, websocket.MessageBinary, func(p *pieces) { p.binary(nil, place.String()) })
	}
}

// wrote notes when what was written is taken, of so many bytes.
func (o *socket) wrote(bytes int) {
	now := time.Now()
	if o.taken.Before(now) {
		o.taken = now
	}
	o.taken = o.taken.Add(time.Duration(bytes) * writeTimeout / writtenAtOnce)
	if most := now.Add(takenWithin); o.taken.After(most) {
		o.taken = most
	}
}

// ask asks a client whether it is there, and ends the connection where it is not.
func (o *socket) ask() {
	defer o.asks.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	if err := o.conn.Ping(ctx); err != nil {
		o.end(err)
	}
}

// send writes one message: in one frame if it is small, else in several, so that a large message is
// never copied.
func (o *socket) send(ctx context.Context, kind websocket.MessageType, fill func(*pieces)) (int, error) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	var w io.WriteCloser
	p := &pieces{buffer: (*buffer)[:0]}
	defer func() { o.wrote(p.bytes) }()
	p.write = func(b []byte) (err error) {
		if err := setDeadline(ctx, o.raw); err != nil {
			return err
		}
		if w == nil {
			if w, err = o.conn.Writer(context.Background(), kind); err != nil {
				return err
			}
		}
		_, err = w.Write(b)
		return err
	}
	fill(p)
	if !p.flushed {
		if err := setDeadline(ctx, o.raw); err != nil {
			return 0, err
		}
		return p.bytes, o.conn.Write(context.Background(), kind, p.buffer)
	}
	if p.flush(); p.err != nil {
		return p.bytes, p.err
	}
	return p.bytes, w.Close()
}

// setDeadline gives a client its time for what is written next. If the connection is to end, that is
// little: its end may set the same deadline at the same time.
func setDeadline(ctx context.Context, to interface{ SetWriteDeadline(time.Time) error }) error {
	err := to.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil && ctx.Err() != nil {
		err = to.SetWriteDeadline(time.Now().Add(lastWrite))
	}
	return err
}
