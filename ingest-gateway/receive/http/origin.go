// SPDX-License-Identifier: Apache-2.0

package http

import (
	"errors"
	"net/http"

	"github.com/substorm/substorm/internal/wire"
)

// crossOrigin knows requests that a browser sends for a web page of another origin, by
// Sec-Fetch-Site, or by Origin and Host. Requests of other programs have none of these
// headers and pass, as do those of methods that change nothing.
var crossOrigin http.CrossOriginProtection

var errCrossOrigin = errors.New("a browser sends this for a web page of another origin, and no web page may write observations: send from a program")

// fromAnotherOrigin refuses what a web page of another origin has a browser send: the
// browser may be in a network from which the Instrument takes everything.
func (q *request) fromAnotherOrigin() bool {
	if crossOrigin.Check(q.r) == nil {
		return false
	}
	q.refuseUnread(wire.CauseCrossOrigin, errCrossOrigin)
	return true
}
