// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/substorm/substorm/internal/problem"
)

const (
	// bodyTimeout is how long a client may take for the body of a request, and maxBody how
	// large that may be: no endpoint takes files.
	bodyTimeout = 10 * time.Second
	maxBody     = 16 << 10
)

// bodies reads the body of each request before it is served, even if the endpoint has no use for
// one: a client that announces a body, and sends none, would otherwise keep its connection for as
// long as it likes.
func bodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			w.Header().Set("Connection", "close")
			p := problem.New(http.StatusRequestTimeout, "the body of the request did not come within %s", bodyTimeout)
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				p = problem.New(http.StatusRequestEntityTooLarge, "the body of a request may have %d bytes", maxBody)
			}
			p.Write(w)
			return
		}
		_ = control.SetReadDeadline(time.Time{})
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
