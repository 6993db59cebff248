// SPDX-License-Identifier: Apache-2.0

package latest_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
)

var snippet = regexp.MustCompile("(?s)<!-- snippet: latest -->\n```html\n(.*?)```")

// picture is so many pixels wide.
func picture(t *testing.T, width int) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, 1))); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What the documentation tells a page to do shows each picture, of which each is asked
// for once, and nothing else is.
func TestSnippet(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no Chromium is installed")
		}
		t.Skip("no Chromium is installed: apt-get install chromium")
	}
	text, err := os.ReadFile("../../docs/how-to/latest.md")
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

	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	tab, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() { cancel(); stop() })
	l.Asked()
	if _, err := chromedp.Run(tab, chromedp.Navigate(other.URL)); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= pictures; n++ {
		if n > 1 {
			l.Put(archivetest.Camera, fmt.Sprint(n, ".png"), picture(t, n), typed("image/png"))
		}
		l.Until(fmt.Sprintf("the page shows picture %d", n), func() bool {
			ctx, cancel := context.WithTimeout(tab, 30*time.Second)
			defer cancel()
			width, err := chromedp.Run(ctx, chromedp.Evaluate[float64](`document.getElementById("sky").naturalWidth`))
			if err != nil {
				t.Fatal(err)
			}
			return int(width) == n
		})
	}
	if asked := l.Asked(); len(asked) != 1+pictures {
		t.Errorf("for %d pictures %d requests: %q", pictures, len(asked), asked)
	}
}
