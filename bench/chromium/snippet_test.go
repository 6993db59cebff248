// SPDX-License-Identifier: Apache-2.0

package chromium_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
)

var snippet = regexp.MustCompile("(?s)<!-- snippet: latest -->\n```html\n(.*?)```")

// The page of the documentation shows each picture, requests each of them once, and requests nothing else.
func TestSnippet(t *testing.T) {
	t.Parallel()
	b := start(t)
	text, err := os.ReadFile("latest.md") // a link: go test sees changes of files inside this module only
	if err != nil {
		t.Fatal(err)
	}
	found := snippet.FindSubmatch(text)
	if found == nil || bytes.Count(found[1], []byte("\n")) != 10 {
		t.Fatal("docs/how-to/latest.md has no snippet of ten lines")
	}
	l := newLab(t)
	const pictures = 10
	l.Put(archivetest.Camera, "1.png", picture(t, 1), typed("image/png"))
	l.Until("the first picture is there", func() bool { return l.Get("/latest/allsky-1").Status == http.StatusOK })
	page := strings.ReplaceAll(string(found[1]), "https://archive.example.org", l.URL)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // a page of another site
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!DOCTYPE html><title>sky</title>"+page)
	}))
	t.Cleanup(other.Close)

	l.Asked()
	tab, err := b.Open(other.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tab.Close)
	for n := 1; n <= pictures; n++ {
		if n > 1 {
			l.Put(archivetest.Camera, fmt.Sprint(n, ".png"), picture(t, n), typed("image/png"))
		}
		l.Until(fmt.Sprintf("the page shows picture %d", n), func() bool {
			var width int
			if err := tab.Read(`document.getElementById("sky").naturalWidth`, &width); err != nil {
				t.Fatal(err)
			}
			return width == n
		})
	}
	if asked := l.Asked(); len(asked) != 1+pictures {
		t.Errorf("for %d pictures %d requests: %q", pictures, len(asked), asked)
	}
}
