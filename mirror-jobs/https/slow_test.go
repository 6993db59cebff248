// SPDX-License-Identifier: Apache-2.0

package https_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/https"
)

// An answer that comes byte by byte, and never ends, is given up, whatever it answers; as is the text of a redirect.
func TestSlowAnswer(t *testing.T) {
	t.Parallel()
	drip := func(w http.ResponseWriter, r *http.Request, text string) {
		out := http.NewResponseController(w)
		for i := 0; r.Context().Err() == nil; i++ {
			_, _ = io.WriteString(w, text[i%len(text):i%len(text)+1])
			_ = out.Flush()
			time.Sleep(time.Millisecond)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/moved":
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusFound)
			drip(w, r, "moved")
		case r.URL.Path == "/refused":
			w.WriteHeader(http.StatusNotFound)
			drip(w, r, "none")
		case r.URL.Path == mirrorindex.ObjectsPath:
			_ = tar.NewWriter(w).WriteHeader(&tar.Header{Name: "hub/camera/a.jpg", Typeflag: tar.TypeReg, Size: 1 << 30, Mode: 0o644})
			drip(w, r, "a")
		case r.Header.Get("Range") != "":
			var from, to int
			_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
			w.Header().Set("Content-Length", strconv.Itoa(to-from+1))
			w.WriteHeader(http.StatusPartialContent)
			drip(w, r, "a")
		default:
			drip(w, r, " ")
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	discard := func(body io.Reader) error { _, err := io.Copy(io.Discard, body); return err }
	for name, c := range map[string]struct {
		ask  func(*https.Client) error
		says string
	}{
		"root": {func(c *https.Client) error { _, _, _, err := c.Root(t.Context(), ""); return err }, "bytes came in a second"},
		"days": {func(c *https.Client) error {
			_, err := c.Days(t.Context(), []mirrorindex.DaysQuestion{{Instrument: "camera"}})
			return err
		}, "bytes came in a second"},
		"lists": {func(c *https.Client) error {
			_, err := c.Lists(t.Context(), []mirrorindex.ListQuestion{{Instrument: "camera", Day: "2026-01-01"}})
			return err
		}, "bytes came in a second"},
		"a bundle": {func(c *https.Client) error {
			return c.Objects(t.Context(), "hub", []mirrorindex.ObjectsQuestion{{Instrument: "camera"}}, 1<<30, func(_, _, _ string, _ int64, body io.Reader) error { return discard(body) })
		}, "bytes came in a second"},
		"a part": {func(c *https.Client) error {
			return c.Part(t.Context(), "camera", "a.jpg", wire.Digest{}, 0, 1<<20, func(_ int64, body io.Reader) error { return discard(body) })
		}, "bytes came in a second"},
		"a file": {func(c *https.Client) error {
			return c.Get(t.Context(), "/file", nil, func(a *http.Response) error { return discard(a.Body) })
		}, "bytes came in a second"},
		"a refusal": {func(c *https.Client) error {
			return c.Get(t.Context(), "/refused", nil, func(*http.Response) error { return nil })
		}, "404"},
		"a redirect": {func(c *https.Client) error {
			return c.Get(t.Context(), "/moved", nil, func(*http.Response) error { return nil })
		}, "nothing came for"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patience := https.Patience{Silence: time.Minute, Credit: 200 * time.Millisecond, LeastRate: 1 << 20, Tries: 2}
			if name == "a redirect" { // the client reads 2 KiB of it
				patience.Silence = 200 * time.Millisecond
			}
			client := https.New(https.Config{URL: at, Connections: 2, Patience: patience})
			defer client.Close()
			err := c.ask(client)
			if err == nil || !strings.Contains(err.Error(), c.says) || name != "a refusal" && !errors.Is(err, https.ErrBroken) {
				t.Errorf("%v", err)
			}
		})
	}
}
