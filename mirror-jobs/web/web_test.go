// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/bound"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/tree"
	"github.com/substorm/substorm/mirror-jobs/web"
)

// archive is a web server with a folder, and what was asked of it.
type archive struct {
	*httptest.Server
	dir string

	mu    sync.Mutex
	asked []string
	// fails answers what the server fails to; false: it does not.
	fails func(w http.ResponseWriter, r *http.Request) bool
}

func newArchive(t *testing.T, files map[string]string) *archive {
	t.Helper()
	a := &archive{dir: t.TempDir()}
	for name, text := range files {
		a.write(t, name, text)
	}
	served := http.FileServer(http.Dir(a.dir))
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := &status{ResponseWriter: w, code: http.StatusOK}
		a.mu.Lock()
		fails := a.fails
		a.mu.Unlock()
		if fails != nil && fails(w, r) {
			return
		}
		if strings.HasPrefix(r.URL.Path, "/away/") {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
			return
		}
		served.ServeHTTP(status, r)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked = append(a.asked, r.URL.Path+" "+http.StatusText(status.code))
	}))
	t.Cleanup(a.Close)
	return a
}

type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

func (a *archive) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// failing has the server fail.
func (a *archive) failing(fails func(w http.ResponseWriter, r *http.Request) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fails = fails
}

// takes forgets what was asked, and returns it.
func (a *archive) takes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.Clone(a.asked)
	a.asked = nil
	slices.Sort(all)
	return all
}

func source(t *testing.T, base, path string, change ...func(*web.Config)) *web.Source {
	t.Helper()
	at, err := url.Parse(base + path)
	if err != nil {
		t.Fatal(err)
	}
	root, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	cfg := web.Config{URL: at, Client: https.New(https.Config{URL: at, Connections: 2, Agent: web.Agent}), Root: https.New(https.Config{URL: root, Connections: 1, Agent: web.Agent}),
		Connections: 2, Scratch: filepath.Join(t.TempDir(), "scratch"), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, c := range change {
		c(&cfg)
	}
	s, err := web.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pulled walks a tree and fetches all of it that changed since it was seen.
func pulled(t *testing.T, s tree.Source, seen map[string]tree.Seen) (came map[string]string, failed []string) {
	t.Helper()
	came = map[string]string{}
	var mu sync.Mutex
	err := s.Walk(t.Context(), func(f tree.Folder) error {
		var wanted []tree.Wanted
		for _, file := range f.Files {
			wanted = append(wanted, tree.Wanted{File: file, Seen: seen[file.Path]})
		}
		return s.Fetch(t.Context(), wanted, func(i int, got tree.Got) error {
			mu.Lock()
			defer mu.Unlock()
			if got.Err != nil {
				failed = append(failed, wanted[i].Path)
				return nil
			}
			if seen != nil {
				seen[wanted[i].Path] = got.Seen
			}
			if got.Unchanged {
				return nil
			}
			body, err := got.Open()
			if err != nil {
				return err
			}
			defer body.Close()
			text, err := io.ReadAll(body)
			if int64(len(text)) != got.Size {
				t.Errorf("%s has %d bytes, and it is said to have %d", wanted[i].Path, len(text), got.Size)
			}
			came[wanted[i].Path] = string(text)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return came, failed
}

// TestPull: all that is below the folder comes, and nothing that robots.txt forbids or that lies elsewhere; what did not change is not
// sent again.
func TestPull(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<20) // 16 MiB: by way of the disk
	a := newArchive(t, map[string]string{
		"robots.txt":               "User-agent: *\nDisallow: /aurora/private/\nDisallow: /aurora/*.tmp$\n",
		"aurora/2015/03/a b.jpg":   "first",
		"aurora/2015/03/ö.jpg":     "second",
		"aurora/large.bin":         large,
		"aurora/private/x.jpg":     "secret",
		"aurora/half.tmp":          "half",
		"elsewhere/unrelated.html": "<a href=\"/aurora/\">",
	})
	s, seen := source(t, a.URL, "/aurora"), map[string]tree.Seen{}
	want := map[string]string{"2015/03/a b.jpg": "first", "2015/03/ö.jpg": "second", "large.bin": large}
	got, failed := pulled(t, s, seen)
	if diff := cmp.Diff(want, got); diff != "" || len(failed) > 0 {
		t.Errorf("failed: %v; (-want +got):\n%.2000s", failed, diff)
	}
	for _, asked := range a.takes() {
		if strings.Contains(asked, "private") || strings.Contains(asked, "half.tmp") || strings.Contains(asked, "elsewhere") {
			t.Errorf("it asked for %s", asked)
		}
	}
	a.write(t, "aurora/2015/03/ö.jpg", "changed")
	later := time.Now().Add(2 * time.Second) // a file's time in HTTP has seconds
	if err := os.Chtimes(filepath.Join(a.dir, "aurora/2015/03/ö.jpg"), later, later); err != nil {
		t.Fatal(err)
	}
	if got, _ := pulled(t, s, seen); len(got) != 1 || got["2015/03/ö.jpg"] != "changed" {
		t.Errorf("after one file changed, %d came", len(got))
	}
	unchanged := 0
	for _, asked := range a.takes() {
		if strings.HasSuffix(asked, http.StatusText(http.StatusNotModified)) {
			unchanged++
		}
	}
	if unchanged != 2 {
		t.Errorf("of two files that did not change, %d were answered so", unchanged)
	}
	if left, err := filepath.Glob(filepath.Join(t.TempDir(), "..", "*", "scratch", "file-*")); err != nil || len(left) > 0 {
		t.Errorf("scratch holds %v, %v", left, err)
	}
}

// A file with a name that no object can have is listed apart, for the run to count, and so is a folder, which is not read.
func TestNamesOfNoObject(t *testing.T) {
	a := newArchive(t, map[string]string{"aurora/caf\xe9.txt": "no", "aurora/b\\/x.txt": "no", "aurora/1.txt": "first"})
	var listed, bad []string
	if err := source(t, a.URL, "/aurora").Walk(t.Context(), func(f tree.Folder) error {
		for _, file := range f.Files {
			listed = append(listed, file.Path)
		}
		bad = append(bad, f.BadNames...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(listed, []string{"1.txt"}) || !slices.Equal(bad, []string{"b\\", "caf\xe9.txt"}) {
		t.Errorf("it lists %q, and %q with names of no object", listed, bad)
	}
	if asked := a.takes(); len(asked) != 2 {
		t.Errorf("it asked for %q, want robots.txt and one folder", asked)
	}
}

// A server that invents folders without end is left at some depth.
func TestEndlessFolders(t *testing.T) {
	pages := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		pages++
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<a href="d/">deeper</a> <a href="f">file</a>`)
	}))
	defer server.Close()
	files := 0
	err := source(t, server.URL, "/aurora").Walk(t.Context(), func(f tree.Folder) error { files += len(f.Files); return nil })
	if !slices.Equal(bound.Of(err), []string{bound.Depth}) {
		t.Errorf("%v", err)
	}
	if pages != files || pages < 10 || pages > 100 {
		t.Errorf("%d pages were asked for, %d files found", pages, files)
	}
}

// Files and folders that the server fails to give are reported and hold up nothing else; an answer that breaks off is asked for again.
func TestFailures(t *testing.T) {
	a := newArchive(t, map[string]string{"aurora/a.jpg": "first", "aurora/b.jpg": "always fails", "aurora/c.jpg": "breaks off", "aurora/d/e.jpg": "cannot be listed", "aurora/f/g.jpg": "last"})
	var broke atomic.Bool
	a.failing(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/aurora/b.jpg" || r.URL.Path == "/aurora/d/":
			http.Error(w, "no", http.StatusNotImplemented)
		case r.URL.Path == "/aurora/c.jpg" && broke.CompareAndSwap(false, true):
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "breaks")
		default:
			return false
		}
		return true
	})
	s := source(t, a.URL, "/aurora")
	var failed []string
	came := map[string]int64{}
	var mu sync.Mutex
	err := s.Walk(t.Context(), func(f tree.Folder) error {
		var wanted []tree.Wanted
		for _, file := range f.Files {
			wanted = append(wanted, tree.Wanted{File: file})
		}
		return s.Fetch(t.Context(), wanted, func(i int, got tree.Got) error {
			mu.Lock()
			defer mu.Unlock()
			if got.Err != nil {
				failed = append(failed, wanted[i].Path)
			} else {
				came[wanted[i].Path] = got.Size
			}
			return nil
		})
	})
	if !errors.Is(err, tree.ErrUnlisted) {
		t.Errorf("a folder could not be listed: %v", err)
	}
	if diff := cmp.Diff(map[string]int64{"a.jpg": 5, "c.jpg": 10, "f/g.jpg": 4}, came); diff != "" || !slices.Equal(failed, []string{"b.jpg"}) {
		t.Errorf("failed: %v (-want +came):\n%s", failed, diff)
	}
}

// A server that gives nothing any more is left.
func TestFailsAsAWhole(t *testing.T) {
	files := map[string]string{}
	for i := range 100 {
		files[fmt.Sprintf("aurora/%d.jpg", i)] = "text"
	}
	a := newArchive(t, files)
	var asked atomic.Int32
	a.failing(func(w http.ResponseWriter, _ *http.Request) bool {
		asked.Add(1)
		http.Error(w, "no", http.StatusNotImplemented)
		return true
	})
	s := source(t, a.URL, "/aurora")
	var wanted []tree.Wanted
	for i := range 100 {
		wanted = append(wanted, tree.Wanted{File: plan.File{Path: fmt.Sprintf("%d.jpg", i)}})
	}
	var failed atomic.Int32
	err := s.Fetch(t.Context(), wanted, func(int, tree.Got) error { failed.Add(1); return nil })
	var problem *push.Problem
	if !errors.As(err, &problem) || problem.Reason != wire.MirrorReasonUnreachable || failed.Load() == 0 || asked.Load() > 20 {
		t.Errorf("after %d questions, %d files failed: %v", asked.Load(), failed.Load(), err)
	}
}

// A server that is not there, refuses, lists nothing, sends elsewhere, or fails to say what robots may do.
func TestBadServers(t *testing.T) {
	a := newArchive(t, map[string]string{"file.txt": "no folder", "index/index.html": "no list"})
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer refuses.Close()
	robots := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusNotImplemented) }))
	defer robots.Close()
	for name, c := range map[string]struct{ url, path, reason, says string }{
		"nobody listens":   {closed.URL, "/aurora", wire.MirrorReasonUnreachable, "refused"},
		"it lets nobody":   {refuses.URL, "/aurora", wire.MirrorReasonAccessDenied, "403"},
		"no such folder":   {a.URL, "/nothing", wire.MirrorReasonProtocol, "404"},
		"it is a file":     {a.URL, "/file.txt", wire.MirrorReasonProtocol, "not an index page"},
		"it sends away":    {a.URL, "/away", wire.MirrorReasonProtocol, "redirects, to"},
		"robots.txt fails": {robots.URL, "/aurora", wire.MirrorReasonUnreachable, "robots.txt"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := source(t, c.url, c.path).Walk(ctx, func(tree.Folder) error { return errors.New("it has a folder") })
			var problem *push.Problem
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("it says %v", err)
			}
			if errors.As(err, &problem); problem == nil || problem.Reason != c.reason {
				t.Errorf("the reason is %+v", problem)
			}
		})
	}
}
