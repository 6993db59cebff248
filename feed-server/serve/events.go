// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/session"
	"github.com/substorm/substorm/internal/wire"
)

// serveEvents answers GET /feeds/{feed}/events with Server-Sent Events.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	// Any page may ask: what a browser would add by itself it leaves out then.
	w.Header().Set("Access-Control-Allow-Origin", "*")
	a, p := s.authorize(r, wire.DeliveryServerSentEvents)
	if p != nil {
		s.refuse(w, r, p)
		return
	}
	resume := r.Header.Get("Last-Event-ID")
	if resume == "" {
		resume = r.URL.Query().Get("resume")
	}
	out := &events{w: w, control: http.NewResponseController(w)}
	c, p := s.connect(r, a, resume, out.write)
	if p != nil {
		s.refuse(w, r, p)
		return
	}
	defer s.leave(c)
	endpoint.Narrow(r)
	gone := context.AfterFunc(r.Context(), func() { c.cancel(r.Context().Err()) })
	defer gone()
	// A write that the client does not take ends when the connection is to.
	stop := context.AfterFunc(c.ctx, out.last)
	defer out.end()
	defer stop()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies pass on what comes
	if err := out.begin(); err != nil {
		s.ended(c, r, err)
		return
	}
	err := c.session.Run(c.ctx)
	if cause := context.Cause(c.ctx); cause != nil {
		err = cause
	}
	s.ended(c, r, err)
}

// events writes to one client.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	told    wire.FeedToken

	mu   sync.Mutex
	over bool // the answer is not ours any more
}

// last bounds the write that is under way.
func (o *events) last() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		_ = o.control.SetWriteDeadline(time.Now().Add(lastWrite))
	}
}

// end ends the request: its response writer must not be used after that.
func (o *events) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
}

// begin sends the delay before a reconnect: the stream may end at any time.
func (o *events) begin() error {
	_, err := o.send(context.Background(), func(p *pieces) { p.add([]byte("retry: 1000\n\n")) })
	return err
}

func (o *events) write(ctx context.Context, entries []session.Entry, place wire.FeedToken) (int, error) {
	n, err := o.send(ctx, func(p *pieces) {
		for _, e := range entries {
			token := e.Token.String()
			p.head(func(b []byte) []byte {
				b = append(append(b, "event: "...), e.Kind().String()...)
				b = append(append(b, "\nid: "...), token...)
				return append(b, "\ndata: "...)
			})
			p.text(e, token)
			p.add([]byte("\n\n"))
		}
		if len(entries) == 0 {
			p.add([]byte(": \n"))
			if place != o.told { // an event without data is its id alone
				p.head(func(b []byte) []byte { return append(append(b, "id: "...), place.String()...) })
				p.add([]byte("\n"))
			}
			p.add([]byte("\n"))
		}
	})
	o.told = place
	return n, err
}

func (o *events) send(ctx context.Context, fill func(*pieces)) (int, error) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	p := &pieces{buffer: (*buffer)[:0], write: func(b []byte) error {
		if err := setDeadline(ctx, o.control); err != nil {
			return err
		}
		_, err := o.w.Write(b)
		return err
	}}
	fill(p)
	p.flush()
	err := p.err
	if err == nil {
		err = o.control.Flush()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errSlow
	}
	return p.bytes, err
}
