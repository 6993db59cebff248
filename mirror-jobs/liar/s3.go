// SPDX-License-Identifier: Apache-2.0

// Package liar has partners that lie, for the tests of whatever asks partners.
package liar

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
)

// Page is what a captive portal answers.
const Page = "<!DOCTYPE html><html><head><title>Login</title></head><body>Please log in</body></html>\n"

// Mode is how a partner lies; empty: it does not.
type Mode string

// The ways in which a proxy before a bucket lies.
const (
	// Portal answers every request with 200 and Page.
	Portal Mode = "portal"
	// BarePortal does so without a media type, and with a well-formed page.
	BarePortal Mode = "bare portal"
	// Redirect sends every request elsewhere.
	Redirect Mode = "redirect"
	// Forgets says that it stored what it did not store, as a server does.
	Forgets Mode = "forgets"
	// NoETag does so without an ETag.
	NoETag Mode = "no etag"
	// PageAfter stores objects, and answers reads of them with Page.
	PageAfter Mode = "page after"
	// Fails stores objects and answers 500.
	Fails Mode = "fails"
	// FailsAfter stores objects, and answers 500 to reads of them.
	FailsAfter Mode = "fails after"
	// Cut ends each object in its middle.
	Cut Mode = "cut"
	// OtherBytes gives other bytes of the same length.
	OtherBytes Mode = "other bytes"
	// KeepsAll says that it removed what it keeps, with Page.
	KeepsAll Mode = "keeps all"
)

// BucketModes are those of a Proxy.
var BucketModes = []Mode{Portal, BarePortal, Redirect, Forgets, NoETag, PageAfter, Fails, FailsAfter, Cut, OtherBytes}

// Proxy stands before a server of S3.
type Proxy struct {
	// URL of it.
	URL  string
	mode atomic.Pointer[Mode]
}

// Set has it lie in another way from now on.
func (p *Proxy) Set(m Mode) { p.mode.Store(&m) }

// Before returns a proxy before the server at a URL.
func Before(t testing.TB, server string) *Proxy {
	t.Helper()
	at, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{}
	p.Set("")
	honest := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(at)
		r.Out.Host = r.In.Host // it is signed
	}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(*p.mode.Load(), honest, w, r) }))
	t.Cleanup(s.Close)
	p.URL = s.URL
	return p
}

func (p *Proxy) serve(mode Mode, honest http.Handler, w http.ResponseWriter, r *http.Request) {
	put, get := r.Method == http.MethodPut || r.Method == http.MethodPost, r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case mode == Portal, mode == PageAfter && get, mode == KeepsAll && r.Method == http.MethodDelete:
		drain(r)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, Page)
	case mode == BarePortal:
		drain(r)
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, "<html><body>Login</body></html>")
	case mode == Redirect:
		drain(r)
		http.Redirect(w, r, "http://portal.invalid/login", http.StatusFound)
	case (mode == Forgets || mode == NoETag) && put:
		drain(r)
		if mode == Forgets {
			w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
		}
	case mode == Fails && put, mode == FailsAfter && get:
		if put {
			honest.ServeHTTP(httptest.NewRecorder(), r)
		}
		http.Error(w, "try again", http.StatusInternalServerError)
	case (mode == Cut || mode == OtherBytes) && r.Method == http.MethodGet:
		change(mode, honest, w, r)
	default:
		honest.ServeHTTP(w, r)
	}
}

// change gives other bytes than the server, or fewer.
func change(mode Mode, honest http.Handler, w http.ResponseWriter, r *http.Request) {
	got := httptest.NewRecorder()
	honest.ServeHTTP(got, r)
	body := got.Body.Bytes()
	for name, values := range got.Header() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	if w.WriteHeader(got.Code); mode == Cut {
		body = body[:len(body)/2]
	} else {
		for i := range body {
			body[i] ^= 0xff
		}
	}
	_, _ = w.Write(body)
}

func drain(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
