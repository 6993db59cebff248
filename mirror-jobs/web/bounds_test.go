// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/bound"
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
	s := source(t, url, "/a", func(c *web.Config) { c.Limits.Folders = 50 })
	folders := 0
	err := s.Walk(t.Context(), func(tree.Folder) error { folders++; return nil })
	var p *push.Problem
	if !errors.Is(err, tree.ErrUnlisted) || !errors.As(err, &p) || p.Reason != wire.MirrorReasonProtocol || !strings.Contains(err.Error(), "the limit of 50 folders") || !slices.Contains(bound.Of(err), bound.Folders) {
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
	s := source(t, url, "/a", func(c *web.Config) { c.Limits.Folders = 1 })
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

// endlessPage is a server whose only page begins in some way and repeats a text without end; of what is sent it counts the bytes.
func endlessPage(t *testing.T, begin string, repeat func(i int) string) (url string, sent *atomic.Int64) {
	t.Helper()
	sent = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, err := fmt.Fprint(w, begin)
		for i := 0; err == nil && r.Context().Err() == nil; i++ {
			var n int
			n, err = fmt.Fprint(w, repeat(i))
			sent.Add(int64(n))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, sent
}

// A page without end is read up to its limits, whatever it repeats; its links up to there come, and the run ends with a reason.
func TestEndlessPage(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<10)
	for name, c := range map[string]struct {
		begin  string
		repeat func(i int) string
		// links are those that are kept with a limit of n, and says is a part of the error.
		links func(n int) int
		says  string
	}{
		"links":           {"", func(i int) string { return fmt.Sprintf("<a href=%x>", i) }, func(n int) int { return n }, "links"},
		"folders":         {"", func(i int) string { return fmt.Sprintf("<a href=%x/>", i) }, func(int) int { return 0 }, "links"},
		"long names":      {"", func(i int) string { return fmt.Sprintf("<a href=%s%x>", long[:500], i) }, nil, "for links"},
		"a mark":          {"<a href=f>f</a> 17-Mar-2015 12:00 ", func(int) string { return long }, func(int) int { return 1 }, "element"},
		"marks":           {"", func(i int) string { return fmt.Sprintf("<a href=%x>f</a> 17-Mar-2015 12:00 %s", i, long[:200]) }, nil, "links"},
		"an attribute":    {"<a href=f>f</a><a href=", func(int) string { return long }, func(int) int { return 1 }, "element"},
		"a comment":       {"<a href=f>f</a><!--", func(int) string { return long }, func(int) int { return 1 }, "element"},
		"tags of nothing": {"<a href=f>f</a>", func(int) string { return strings.Repeat("<b>", 1<<10) }, func(int) int { return 1 }, "4 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, sent := endlessPage(t, c.begin, c.repeat)
			kept := map[int]int64{}
			for _, n := range []int{1000, 2000} {
				s := source(t, url, "/a", func(cfg *web.Config) {
					cfg.Limits, cfg.Page = tree.Limits{Folders: 1, Files: n, Bytes: int64(n) * 300}, 4<<20
				})
				before, files := sent.Load(), 0
				err := s.Walk(t.Context(), func(f tree.Folder) error {
					for _, file := range f.Files {
						kept[n] += tree.Size(file.Path, file.Mark)
						files++
					}
					return nil
				})
				var p *push.Problem
				if !errors.Is(err, tree.ErrUnlisted) || !errors.As(err, &p) || p.Reason != wire.MirrorReasonProtocol || !strings.Contains(err.Error(), c.says) ||
					!slices.Contains(bound.Of(err), bound.Page) {
					t.Errorf("%v", err)
				}
				if c.links != nil && files != c.links(n) || kept[n] > int64(n)*300 {
					t.Errorf("with a limit of %d: %d files, which take %d bytes", n, files, kept[n])
				}
				if n := sent.Load() - before; n > 128<<20 {
					t.Errorf("%d MiB were sent", n>>20)
				}
			}
			if kept[2000] > 2*kept[1000]+1000 {
				t.Errorf("kept: %v", kept)
			}
		})
	}
}

// Folders that lie too deep end a run with a reason, and what lies above them comes.
func TestTooDeep(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a/f": "1", "a/b/f": "2", "a/b/c/f": "3", "a/b/c/d/f": "4"}
	s := source(t, newArchive(t, files).URL, "", func(c *web.Config) { c.Limits.Depth = 2 })
	var found []string
	err := s.Walk(t.Context(), func(f tree.Folder) error {
		for _, file := range f.Files {
			found = append(found, file.Path)
		}
		return nil
	})
	if !slices.Equal(bound.Of(err), []string{bound.Depth}) || !errors.Is(err, tree.ErrUnlisted) || !strings.Contains(err.Error(), `"a/b/c"`) {
		t.Errorf("%v", err)
	}
	if slices.Sort(found); !slices.Equal(found, []string{"a/b/f", "a/f"}) {
		t.Errorf("it lists %v", found)
	}
}
