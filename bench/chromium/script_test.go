// SPDX-License-Identifier: Apache-2.0

package chromium_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
)

// scripts say that they ran, and where, each as its type may hold them.
var scripts = map[string]string{
	"text/html":             `<!DOCTYPE html><p id="it">shown</p><script>document.documentElement.setAttribute("ran", origin)</script>`,
	"application/xhtml+xml": `<html xmlns="http://www.w3.org/1999/xhtml"><body><script>document.documentElement.setAttribute("ran", origin)</script></body></html>`,
	"image/svg+xml":         `<svg xmlns="http://www.w3.org/2000/svg"><script>document.documentElement.setAttribute("ran", origin)</script></svg>`,
	"application/xml":       `<x><x:script xmlns:x="http://www.w3.org/1999/xhtml">document.documentElement.setAttribute("ran", origin)</x:script></x>`,
	// Chromium reads this one as HTML.
	"text/xsl":   `<!DOCTYPE html><script>document.documentElement.setAttribute("ran", origin)</script>`,
	"text/plain": `<!DOCTYPE html><script>document.documentElement.setAttribute("ran", origin)</script>`,
	"x/y":        `<!DOCTYPE html><script>document.documentElement.setAttribute("ran", origin)</script>`,
}

// Whatever type a sender gives to what it sends: a browser that opens it runs no script
// of it as a page of the archive. Pictures are shown.
func TestObjectsRunNoScript(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for mediaType, body := range scripts {
		l.Put(archivetest.Camera, strings.NewReplacer("/", "-", "+", "-").Replace(mediaType), body+"<!-- "+mediaType+" -->", typed(mediaType)) // equal ones may be duplicates
	}
	l.Put(archivetest.Camera, "picture", picture(t, 7), typed("image/png"))
	path := func(mediaType string) string {
		return "/archive/" + archivetest.Camera + "/" + strings.NewReplacer("/", "-", "+", "-").Replace(mediaType)
	}
	l.Until("all objects are there", func() bool { return l.Get(path("picture")).Status == http.StatusOK })
	for mediaType := range scripts {
		for _, at := range []string{path(mediaType), "/latest/" + archivetest.Camera + "?type=" + strings.ReplaceAll(mediaType, "+", "%2B")} {
			a := l.Get(at)
			if a.Status != http.StatusOK || !strings.HasPrefix(a.Header.Get("Content-Security-Policy"), "sandbox;") || a.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s at %s: %d %v", mediaType, at, a.Status, a.Header)
			}
		}
	}
	b := start(t)
	evaluate := func(url, script string, into any) {
		t.Helper()
		tab, err := b.Open(url)
		if err != nil {
			if strings.Contains(err.Error(), "net::ERR_ABORTED") { // it is downloaded
				return
			}
			t.Fatal(err)
		}
		defer tab.Close()
		if err := tab.Read(script, into); err != nil {
			t.Fatalf("%s: %v", url, err)
		}
	}
	for mediaType := range scripts {
		var ran string
		evaluate(l.URL+path(mediaType), `document.documentElement.getAttribute("ran") || ""`, &ran)
		if ran != "" {
			t.Errorf("%s: a script of it ran as a page of %s", mediaType, ran)
		}
	}
	var width int
	evaluate(l.URL+path("picture"), `document.images[0].naturalWidth`, &width)
	if width != 7 {
		t.Errorf("a picture that is opened has width %d", width)
	}
}
