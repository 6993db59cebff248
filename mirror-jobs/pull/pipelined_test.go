// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/substorm/substorm/internal/mirrorindex"
)

// TestPipelined: a run asks for more while an answer is on its way: the first request for objects is answered only after
// three others were.
func TestPipelined(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := l.fill()
	target, err := url.Parse(l.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	var mu sync.Mutex
	begun, answered := 0, 0
	enough := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != mirrorindex.ObjectsPath && !strings.HasPrefix(r.URL.Path, "/archive/") {
			proxy.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		begun++
		first := begun == 1
		mu.Unlock()
		if first {
			select {
			case <-enough:
			case <-t.Context().Done():
			}
		}
		proxy.ServeHTTP(w, r)
		mu.Lock()
		defer mu.Unlock()
		if answered++; answered == 3 {
			close(enough)
		}
	}))
	t.Cleanup(server.Close)
	if err := l.from(t.Context(), server.URL); err != nil {
		t.Error(err)
	}
	l.want("all", want)
}
