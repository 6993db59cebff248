// SPDX-License-Identifier: Apache-2.0

// Package problem says over HTTP why a request is not answered, as RFC 9457 has it.
package problem

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// ContentType of a Problem.
const ContentType = "application/problem+json"

// Problem is a document of RFC 9457.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// retryAfter in seconds; 0 for none.
	retryAfter int
}

// New is a Problem that its status and its detail say all of.
func New(status int, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// After asks the client to come again.
func (p *Problem) After(seconds int) *Problem {
	p.retryAfter = seconds
	return p
}

// Write answers with it.
func (p *Problem) Write(w http.ResponseWriter) {
	body, _ := json.Marshal(p) // it is text
	h := w.Header()
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	h.Set("Content-Type", ContentType)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}
