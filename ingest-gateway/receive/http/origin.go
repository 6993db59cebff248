// SPDX-License-Identifier: Apache-2.0

package http

import (
	"errors"
	"net/http"

	"github.com/substorm/substorm/internal/wire"
)

var errCrossOrigin = errors.New("a browser sends this for a web page, and no web page may write observations: send from a program")

// ofWebPage says whether a browser sends a request for a web page, by Sec-Fetch-Site, or by Origin in older ones; programs send neither. A gateway
// serves no pages: one of its own origin is served by another program, under a name that was made to point here (DNS rebinding).
func ofWebPage(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions: // they change nothing
		return false
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "none" || site == "" && r.Header.Get("Origin") != ""
}

// refusedPage refuses what a web page has a browser send: the browser may be in a network from which the Instrument takes everything.
func (q *request) refusedPage() bool {
	if !ofWebPage(q.r) {
		return false
	}
	q.refuseUnread(wire.CauseCrossOrigin, errCrossOrigin)
	return true
}
