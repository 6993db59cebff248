// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/site"
)

// confirming is a hub that has two days of its origin, which waits for it, and a proxy before the origin.
type confirming struct {
	*hub
	url string
	// refuses answers confirmations with a status; 0: it does not.
	refuses atomic.Int32
	// ledger is what the root names; nil: the origin's own.
	ledger atomic.Pointer[string]
	// confirmed counts the days that were posted.
	confirmed atomic.Int32
	progress  *push.Progress
}

func newConfirming(t *testing.T) *confirming {
	t.Helper()
	c := &confirming{hub: newHub(t)}
	c.has("a.jpg", storm)
	c.has("b.jpg", storm.AddDate(0, 0, 1))
	at, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	honest := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ledger := c.ledger.Load()
		switch {
		case r.URL.Path == mirrorindex.ConfirmedPath:
			if status := c.refuses.Load(); status != 0 {
				http.Error(w, "no", int(status))
				return
			}
			c.confirmed.Add(1)
		case r.URL.Path == mirrorindex.RootPath && ledger != nil:
			r.Header.Del("If-None-Match")
			r.Header.Set("Accept-Encoding", "identity")
			got := httptest.NewRecorder()
			honest.ServeHTTP(got, r)
			var root mirrorindex.Root
			if err := json.Unmarshal(got.Body.Bytes(), &root); err != nil {
				t.Error(err)
			}
			root.Ledger = *ledger
			_ = json.NewEncoder(w).Encode(root) // the client has gone
			return
		}
		honest.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// run makes one run, and returns how many days it asked for.
func (c *confirming) run() (lists int) {
	c.Helper()
	u, err := url.Parse(c.url)
	if err != nil {
		c.Fatal(err)
	}
	source := https.New(https.Config{URL: u, Connections: 2, Token: archivetest.Token, Patience: https.Patience{Tries: 1}})
	defer source.Close()
	c.progress = &push.Progress{}
	asked, err := c.pull(c.url, func(cfg *site.Config) {
		cfg.Source, cfg.Progress = source, c.progress
		cfg.Entry.HTTPS = &wire.MirrorHTTPS{URL: "https://archive.example.org", Origin: archivetest.Site, Source: wire.MirrorSourceSubstorm, Token: true}
	})
	if err != nil {
		c.Fatal(err)
	}
	return countOf(asked, mirrorindex.ListsPath)
}

// A run that looks at all days for an origin that has begun to wait, and cannot say to it what is here, is made again; and so is one for an
// origin that has lost its ledger.
func TestSweepsAgain(t *testing.T) {
	t.Parallel()
	c := newConfirming(t)
	c.run()
	if n := c.run(); n != 0 {
		t.Errorf("nothing changed, and %d lists are asked for", n)
	}
	c.awaits()
	c.refuses.Store(http.StatusServiceUnavailable)
	if n := c.run(); n == 0 {
		t.Error("an origin began to wait, and no day is looked at")
	}
	c.refuses.Store(0)
	if n := c.run(); n == 0 || c.confirmed.Load() < 2 { // the days, and the run
		t.Errorf("after a run that could confirm nothing, %d lists are asked for and %d posts made", n, c.confirmed.Load())
	}
	if n := c.run(); n != 0 {
		t.Errorf("all is confirmed, and %d lists are asked for", n)
	}
	c.ledger.Store(new(string))
	*c.ledger.Load() = "another"
	if n := c.run(); n == 0 {
		t.Error("the origin has another ledger, and no day is looked at")
	}
	if n := c.run(); n != 0 {
		t.Errorf("all is in that ledger, and %d lists are asked for", n)
	}
}

// A run reports why its origin does not wait for it, as long as that is so, also where the origin's root has not changed.
func TestUnawaited(t *testing.T) {
	t.Parallel()
	c := newConfirming(t)
	for range 2 {
		c.run()
		if u := c.progress.Unawaited(); u == nil || *u != (wire.MirrorUnawaited{Reader: archivetest.Reader}) {
			t.Errorf("the origin waits for no one: %+v", u)
		}
	}
	c.awaits()
	c.refuses.Store(http.StatusForbidden)
	for range 2 {
		c.run()
		if u := c.progress.Unawaited(); u == nil || !strings.Contains(u.Refused, "403 Forbidden") {
			t.Errorf("the origin refuses: %+v", u)
		}
	}
	c.refuses.Store(0)
	for range 2 {
		c.run()
		if u := c.progress.Unawaited(); u != nil {
			t.Errorf("the origin waits: %+v", u)
		}
	}
}
