// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// RequestOfConnection stands for a client of another protocol than HTTP, which shows
// nothing: Admission counts it by its address, as a Robot.
func RequestOfConnection(ctx context.Context, c net.Conn) *http.Request {
	r := &http.Request{RemoteAddr: c.RemoteAddr().String(), URL: &url.URL{}, Header: http.Header{}}
	return r.WithContext(WithConnection(ctx, c))
}

// NewOpenTurns returns n turns, at least one, and keeps none for readers: for a protocol in which
// clients cannot authenticate. A client waits for its turn for patience.
func NewOpenTurns(n int, patience time.Duration) *Turns {
	t := NewTurns(n)
	t.kept, t.patience = 0, patience
	return t
}

// TakeAs is Take for a client of another protocol than HTTP.
func (t *Turns) TakeAs(ctx context.Context, address netip.Addr) (done func(), ok bool) {
	return t.take(ctx, client{address: address})
}
