// SPDX-License-Identifier: Apache-2.0

package https_test

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/mirror-jobs/https"
)

// TestStreams: once the way is known, as many parts are asked for at the same time as are planned for it: four, at a rate of one
// byte a second, however many connections there may be.
func TestStreams(t *testing.T) {
	t.Parallel()
	const planned = 4
	var mu sync.Mutex
	running, most := 0, 0
	enough := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") == "" {
			return
		}
		mu.Lock()
		running++
		if most = max(most, running); running == planned {
			select {
			case <-enough:
			default:
				close(enough)
			}
		}
		mu.Unlock()
		select {
		case <-enough:
		case <-r.Context().Done():
		}
		mu.Lock()
		running-- // before the client may ask for another
		mu.Unlock()
		w.Header().Set("Content-Length", "1")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write([]byte{1})
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := https.New(https.Config{URL: at, Connections: 32, BytesPerSecond: func() int64 { return 1 }})
	defer client.Close()
	if err := client.Get(t.Context(), "/", nil, func(*http.Response) error { return nil }); err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	for range 64 {
		group.Go(func() error {
			return client.Part(t.Context(), "mag-1", "object", sha256.Sum256([]byte{1}), 0, 1, func(_ int64, body io.Reader) error {
				_, err := io.Copy(io.Discard, body)
				return err
			})
		})
	}
	if err := group.Wait(); err != nil || most != planned {
		t.Errorf("%d parts were asked for at the same time, want %d: %v", most, planned, err)
	}
}

// TestBundles: as many bundles are asked for at the same time as the other side says that it sends: three, of 16 connections.
func TestBundles(t *testing.T) {
	t.Parallel()
	const sent = 3
	var mu sync.Mutex
	running, most := 0, 0
	enough := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == mirrorindex.RootPath {
			_ = json.NewEncoder(w).Encode(mirrorindex.Root{Format: mirrorindex.Format, Site: "hub", Now: time.Now(), Bundles: sent})
			return
		}
		mu.Lock()
		running++
		if most = max(most, running); running == sent {
			select {
			case <-enough:
			default:
				close(enough)
			}
		}
		mu.Unlock()
		select {
		case <-enough:
		case <-r.Context().Done():
		}
		mu.Lock()
		running-- // before the client may ask for another
		mu.Unlock()
		const end = `{"format":1}`
		out := tar.NewWriter(w)
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "hub/" + mirrorindex.EndName, Size: int64(len(end))}); err == nil {
			_, _ = out.Write([]byte(end))
		}
		_ = out.Close()
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := https.New(https.Config{URL: at, Connections: 16})
	defer client.Close()
	if _, _, _, err := client.Root(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	for range 12 {
		group.Go(func() error { return client.Objects(t.Context(), "hub", nil, 0, nil) })
	}
	if err := group.Wait(); err != nil || most != sent {
		t.Errorf("%d bundles were asked for at the same time, want %d: %v", most, sent, err)
	}
}
