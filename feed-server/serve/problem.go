// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// problem is why a request is not answered: a document of RFC 9457.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// retryAfter in seconds; 0 for none.
	retryAfter int
}

func newProblem(status int, format string, args ...any) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// after asks the client to come again.
func (p *problem) after(seconds int) *problem {
	p.retryAfter = seconds
	return p
}

func (p *problem) write(w http.ResponseWriter) {
	body, _ := json.Marshal(p) // it is text
	h := w.Header()
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	if p.Status == http.StatusUnauthorized {
		h.Add("WWW-Authenticate", `Bearer realm="substorm"`)
		h.Add("WWW-Authenticate", `Basic realm="substorm", charset="UTF-8"`)
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}
