// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/mirrorindex"
)

// A run with force that fails before it has compared all is made again by the next run, which is not forced.
func TestForcedRunIsMadeAgain(t *testing.T) {
	for _, fails := range []string{mirrorindex.RootPath, mirrorindex.DaysPath, mirrorindex.ListsPath, mirrorindex.ObjectsPath} {
		t.Run(fails, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.tries = 1
			l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
			l.Wait(l.Put(archivetest.Camera, "2.jpg", "two", at(storm.AddDate(0, 2, 0))))
			l.pull()
			if err := os.Remove(filepath.Join(l.dir, "allsky-1/1.jpg")); err != nil {
				t.Fatal(err)
			}
			l.pull()
			l.want("a run that goes by what was noted", map[string]string{"allsky-1/2.jpg": "two"})
			l.force = true
			if err := l.from(t.Context(), without(t, l.URL, fails)); err == nil {
				t.Fatal("the run succeeds")
			}
			l.force = false
			l.pull()
			l.want("the run after it", map[string]string{"allsky-1/1.jpg": "one", "allsky-1/2.jpg": "two"})
			if asked := l.pull(); len(asked) != 1 {
				t.Errorf("nothing is left: %q", asked)
			}
		})
	}
}

// without is the address of a server that refuses one path of another server.
func without(t *testing.T, address, path string) string {
	t.Helper()
	to, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			http.Error(w, "not now", http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}
