// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/liar"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

// A captive portal is no archive, neither in place of the index nor of a file. Pages that an archive has come.
func TestPortal(t *testing.T) {
	t.Parallel()
	page := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, liar.Page)
	}
	portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { page(w) }))
	t.Cleanup(portal.Close)
	err := source(t, portal.URL, "/aurora").Walk(t.Context(), func(tree.Folder) error { return errors.New("it has a folder") })
	if problem := (*push.Problem)(nil); !errors.As(err, &problem) || problem.Reason != wire.MirrorReasonProtocol {
		t.Errorf("in place of the index: %v", err)
	}

	a := newArchive(t, map[string]string{"aurora/a.jpg": "first", "aurora/b.TXT": "second", "aurora/about.html": liar.Page, "aurora/page": liar.Page, "aurora/sent.txt": liar.Page})
	s, seen := source(t, a.URL, "/aurora"), map[string]tree.Seen{}
	a.failing(func(w http.ResponseWriter, r *http.Request) bool {
		lies := strings.HasSuffix(r.URL.Path, "a.jpg") || strings.HasSuffix(r.URL.Path, "b.TXT")
		if lies {
			page(w)
		}
		return lies
	})
	want := map[string]string{"about.html": liar.Page, "page": liar.Page, "sent.txt": liar.Page}
	got, failed := pulled(t, s, seen)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +came):\n%s", diff)
	}
	if slices.Sort(failed); !slices.Equal(failed, []string{"a.jpg", "b.TXT"}) {
		t.Errorf("in place of files: failed are %q", failed)
	}
	a.failing(nil)
	if got, failed := pulled(t, s, seen); got["a.jpg"] != "first" || got["b.TXT"] != "second" || len(failed) > 0 {
		t.Errorf("from an honest server: %q, failed are %q", got, failed)
	}
}

// Entries with paths, sizes and names that no file may have are passed over, or have no place outside of the folder.
func TestLyingIndexPage(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/aurora/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<a href="../../evil.txt">up</a> <a href="..%2f..%2fevil.txt">up</a> <a href="/etc/passwd">root</a> <a href="//portal.invalid/evil.txt">elsewhere</a>
			<a href="https://portal.invalid/aurora/evil.txt">elsewhere</a> <a href="file:///etc/passwd">local</a> <a href="%00">zero</a> <a href="./">self</a> <a href="a%2Fb.txt">slash</a>
			<a href="good.txt">good</a> 2015-03-17 12:00 99999999999999999999999 <a href="good.txt">again</a> 2015-03-17 12:00 -5`)
	}))
	t.Cleanup(server.Close)
	var got []string
	if err := source(t, server.URL, "/aurora").Walk(t.Context(), func(f tree.Folder) error {
		for _, file := range f.Files {
			got = append(got, f.Path+"|"+file.Path)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if !slices.Equal(got, []string{"|good.txt"}) {
		t.Errorf("listed are %q", got)
	}
}
