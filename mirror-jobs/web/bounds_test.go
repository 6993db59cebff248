// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/tree"
	"github.com/substorm/substorm/mirror-jobs/web"
)

// endless is a server that invents ten folders in each folder, and validators as long as a header may be; one folder and one file
// lead to what its robots.txt forbids.
func endless(t *testing.T) (url string, secret *atomic.Bool) {
	t.Helper()
	secret = new(atomic.Bool)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/robots.txt":
			fmt.Fprint(w, "User-agent: *\nDisallow: /secret/\n")
		case strings.HasPrefix(r.URL.Path, "/secret/"):
			secret.Store(true)
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<a href=f>f</a>")
		case r.URL.Path == "/a/away/" || r.URL.Path == "/a/away.txt":
			http.Redirect(w, r, "/secret/", http.StatusFound)
		case strings.HasSuffix(r.URL.Path, "/f"):
			w.Header().Set("ETag", `"`+strings.Repeat("e", 900_000)+`"`)
			fmt.Fprint(w, "x")
		default:
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<a href=away/>away</a><a href=f>f</a>")
			for i := range 10 {
				fmt.Fprintf(w, "<a href=%d/>x</a>", i)
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, secret
}

// Folders without end are read up to a bound, which the run ends with a reason for; what was found below it comes.
func TestTooManyFolders(t *testing.T) {
	url, secret := endless(t)
	s := source(t, url, "/a", func(c *web.Config) { c.Folders = 50 })
	folders := 0
	err := s.Walk(t.Context(), func(tree.Folder) error { folders++; return nil })
	var p *push.Problem
	if !errors.Is(err, tree.ErrUnlisted) || !errors.As(err, &p) || p.Reason != wire.MirrorReasonProtocol || !strings.Contains(err.Error(), "more than 50 folders") {
		t.Errorf("folders without end: %v", err)
	}
	if folders < 48 || folders > 50 { // that one is passed over
		t.Errorf("%d folders were visited", folders)
	}
	if secret.Load() {
		t.Error("what robots.txt forbids was read, where a folder led to it")
	}
}

// A file that leads to what robots.txt forbids does not come, and a validator that is too long is not kept.
func TestForbiddenFile(t *testing.T) {
	url, secret := endless(t)
	s := source(t, url, "/a", func(c *web.Config) { c.Folders = 1 })
	if err := s.Walk(t.Context(), func(tree.Folder) error { return nil }); !errors.Is(err, tree.ErrUnlisted) {
		t.Fatal(err)
	}
	files := []tree.Wanted{{File: plan.File{Path: "away.txt", Size: -1}}, {File: plan.File{Path: "f", Size: -1, Mark: strings.Repeat("m", 900_000)}}}
	got := make([]tree.Got, len(files))
	if err := s.Fetch(t.Context(), files, func(i int, g tree.Got) error { got[i] = g; return nil }); err != nil {
		t.Fatal(err)
	}
	if got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "robots.txt asks not to read") || secret.Load() {
		t.Errorf("it leads to what is forbidden: %v, which is read: %t", got[0].Err, secret.Load())
	}
	if got[1].Err != nil || got[1].Size != 1 || len(got[1].Seen.ETag)+len(got[1].Seen.Mark) > 512 {
		t.Errorf("%v; an ETag of %d bytes and a mark of %d are kept", got[1].Err, len(got[1].Seen.ETag), len(got[1].Seen.Mark))
	}
}

// A body without end is read up to what an object may have.
func TestEndlessBody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a/small" {
			fmt.Fprint(w, "12345")
			return
		}
		for some := make([]byte, 1<<20); r.Context().Err() == nil; {
			if _, err := w.Write(some); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	s := source(t, server.URL, "/a")
	files := []tree.Wanted{{File: plan.File{Path: "memory", Size: -1}, Most: 5}, {File: plan.File{Path: "disk", Size: -1}, Most: 20 << 20}, {File: plan.File{Path: "small", Size: -1}, Most: 5}}
	got := make([]tree.Got, len(files))
	if err := s.Fetch(t.Context(), files, func(i int, g tree.Got) error { got[i] = g; return nil }); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(got[0].Err, tree.ErrTooLarge) || !errors.Is(got[1].Err, tree.ErrTooLarge) || got[2].Err != nil || got[2].Size != 5 {
		t.Errorf("%v, %v, %v", got[0].Err, got[1].Err, got[2].Err)
	}
}
