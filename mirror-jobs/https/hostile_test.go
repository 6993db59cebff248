// SPDX-License-Identifier: Apache-2.0

package https_test

import (
	"archive/tar"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/mirror-jobs/https"
)

// hostile is a client of a server that answers as it likes, compressed.
func hostile(t *testing.T, answer func(w io.Writer)) *https.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "zstd")
		z, err := zstd.NewWriter(w)
		if err != nil {
			t.Error(err)
			return
		}
		answer(z)
		_ = z.Close()
	}))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := https.New(https.Config{URL: at, Connections: 2})
	t.Cleanup(client.Close)
	return client
}

// An index that goes on and on is refused, whatever it has.
func TestHostileIndex(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ line, says string }{
		"lines of nothing": {"{}\n", "day"},
		"days":             {`{"day":"2026-01-01","tag":"x"}` + "\n", "more than"},
		"a folder":         {`{"day":"../../camera/evil","tag":"x"}` + "\n", "day"},
		"a month":          {`{"month":"2026-13","tag":"x"}` + "\n", "month"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := hostile(t, func(w io.Writer) {
				_, err := io.WriteString(w, `{"instrument":"camera","tag":"x"}`+"\n")
				for text := strings.Repeat(c.line, 1000); err == nil; {
					_, err = io.WriteString(w, text)
				}
			})
			_, err := client.Days(t.Context(), []mirrorindex.DaysQuestion{{Instrument: "camera"}})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A list that is decompressed to far more than came is refused.
func TestHostileList(t *testing.T) {
	t.Parallel()
	client := hostile(t, func(w io.Writer) {
		_, err := io.WriteString(w, `{"instrument":"camera","day":"2026-01-01"}`+"\n")
		for text := strings.Repeat(fmt.Sprintf(`{"path":"`+strings.Repeat("a", 900)+`","size":1,"sha256":"%064d","id":"a","receivedAt":"2026-01-01T00:00:00Z"}`+"\n", 1), 1000); err == nil; {
			_, err = io.WriteString(w, text)
		}
	})
	_, err := client.Lists(t.Context(), []mirrorindex.ListQuestion{{Instrument: "camera", Day: "2026-01-01"}})
	if err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%v", err)
	}
}

// A bundle that never ends is.
func TestHostileBundle(t *testing.T) {
	t.Parallel()
	client := hostile(t, func(w io.Writer) {
		out, data := tar.NewWriter(w), make([]byte, 1<<20)
		for {
			if out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "hub/camera/x", Size: int64(len(data))}) != nil {
				return
			}
			if _, err := out.Write(data); err != nil {
				return
			}
		}
	})
	err := client.Objects(t.Context(), "hub", nil, 1000, func(_, _, _ string, _ int64, body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "was asked for objects of 1000 bytes") {
		t.Errorf("%v", err)
	}
}

// An answer that nothing has changed is none to somebody who did not ask that, and a wait without end is none.
func TestUnasked(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusNotModified)
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := https.New(https.Config{URL: at, Connections: 1})
	defer client.Close()
	if _, _, unchanged, err := client.Root(t.Context(), ""); err == nil || unchanged || asked != 1 {
		t.Errorf("unchanged: %t, %v, after %d requests", unchanged, err, asked)
	}
	if _, _, unchanged, err := client.Root(t.Context(), `"x"`); err != nil || !unchanged {
		t.Errorf("unchanged: %t, %v", unchanged, err)
	}
	if err := client.Get(t.Context(), "/a.txt", nil, func(*http.Response) error { return nil }); err == nil {
		t.Error("a file that is not here is taken for unchanged")
	}
	if err := client.Get(t.Context(), "/a.txt", map[string]string{"If-Modified-Since": time.Now().UTC().Format(http.TimeFormat)}, func(*http.Response) error { return nil }); err != nil {
		t.Error(err)
	}
}
