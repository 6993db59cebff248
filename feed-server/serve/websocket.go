// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// writeTimeout is how long a client may take for what is written at a time.
	writeTimeout = 30 * time.Second
	// pingTimeout is how long a client may take to answer a ping.
	pingTimeout = 30 * time.Second
)

// serveWebSocket answers GET /feeds/{feed}/ws.
func (s *Server) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	a, p := s.ask(r, wire.DeliveryWebSocket)
	if p != nil {
		s.refuse(w, r, p)
		return
	}
	out := &socket{}
	c, p := s.connect(r, a, r.URL.Query().Get("resume"), out.write)
	if p != nil {
		s.refuse(w, r, p)
		return
	}
	defer s.leave(c)
	var err error
	out.conn, err = websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{wire.SubprotocolBinary, wire.SubprotocolJSON},
		// Pages of other sites are let in, unless the browser alone says who is there.
		InsecureSkipVerify: !a.who.ambient,
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		s.cfg.Logger.Debug("no WebSocket", "consumer", a.selection.Consumer.Consumer, "remote", r.RemoteAddr, "error", err)
		return // Accept has answered
	}
	out.text = out.conn.Subprotocol() != wire.SubprotocolBinary
	out.end = c.cancel
	ctx := out.conn.CloseRead(c.ctx) // answers pings, refuses messages, and ends with the connection
	err = c.session.Run(ctx)
	if cause := context.Cause(c.ctx); cause != nil {
		err = cause
	}
	code, reason := closing(err)
	_ = out.conn.Close(code, reason)
	s.ended(c, r, err)
}

// closing is how a client is told why its connection ends.
func closing(err error) (websocket.StatusCode, string) {
	switch {
	case errors.Is(err, errDraining), errors.Is(err, errChanged):
		return websocket.StatusServiceRestart, err.Error()
	case errors.Is(err, errGone), errors.Is(err, errRevoked):
		return websocket.StatusPolicyViolation, err.Error()
	default:
		return websocket.StatusInternalError, "the connection failed: connect again"
	}
}

// socket writes to one client.
type socket struct {
	conn *websocket.Conn
	text bool
	end  context.CancelCauseFunc
	// told is the place that the client was told last.
	told wire.FeedToken
}

func (o *socket) write(ctx context.Context, entries []session.Entry, place wire.FeedToken) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, writeTimeout, errSlow)
	defer cancel()
	bytes, err := 0, error(nil)
	switch {
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
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	o.told = place
	return bytes, err
}

// beat tells a client of whom nothing was heard its place, where that has changed,
// and asks whether it is there.
func (o *socket) beat(ctx context.Context, place wire.FeedToken) (bytes int, err error) {
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		defer cancel()
		if err := o.conn.Ping(ctx); err != nil {
			o.end(err)
		}
	}()
	switch {
	case place == o.told:
		return 0, nil
	case o.text:
		return o.send(ctx, websocket.MessageText, func(p *pieces) { p.place(place.String()) })
	default:
		return o.send(ctx, websocket.MessageBinary, func(p *pieces) { p.binary(nil, place.String()) })
	}
}

// send writes one message: in one frame where it is small, else in several, so
// that what is large is copied for nobody.
func (o *socket) send(ctx context.Context, kind websocket.MessageType, fill func(*pieces)) (int, error) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	var w io.WriteCloser
	p := &pieces{buffer: (*buffer)[:0]}
	p.write = func(b []byte) (err error) {
		if w == nil {
			if w, err = o.conn.Writer(ctx, kind); err != nil {
				return err
			}
		}
		_, err = w.Write(b)
		return err
	}
	fill(p)
	if !p.flushed {
		return p.bytes, o.conn.Write(ctx, kind, p.buffer)
	}
	if p.flush(); p.err != nil {
		return p.bytes, p.err
	}
	return p.bytes, w.Close()
}
