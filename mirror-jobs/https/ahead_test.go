// SPDX-License-Identifier: Apache-2.0

package https_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/https"
)

// ahead is how far an answer may be read ahead at 64 connections, and nearly all of that.
const (
	ahead       = 1 << 20
	nearlyAhead = ahead - 16<<10
)

// serve serves an object at any path.
func serve(t *testing.T, object []byte, secure bool) (at *url.URL, trusts *tls.Config) {
	t.Helper()
	digest := wire.Digest(sha256.Sum256(object))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"`+digest.String()+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(object))
	}))
	t.Cleanup(server.Close)
	if !secure {
		server.Start()
	} else {
		server.StartTLS()
		pool := x509.NewCertPool()
		pool.AddCert(server.Certificate())
		trusts = &tls.Config{RootCAs: pool}
	}
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at, trusts
}

// TestReadAhead: an answer whose taker is held up is read on from the network until the memory that is declared for
// it is full, and no further.
func TestReadAhead(t *testing.T) {
	t.Parallel()
	object := make([]byte, 12<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(object)
	for name, secure := range map[string]bool{"without TLS": false, "with TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, trusts := serve(t, object, secure)
			digest := wire.Digest(sha256.Sum256(object))
			var received, asked atomic.Int64
			full := make(chan struct{})
			once := sync.OnceFunc(func() { close(full) })
			client := https.New(https.Config{URL: at, TLS: trusts, Connections: 64, Received: func(n int) {
				is := received.Add(int64(n))
				if most := asked.Load() + ahead; is > most {
					t.Errorf("%d bytes were read where at most %d may be", is, most)
				}
				if is >= nearlyAhead {
					once()
				}
			}})
			defer client.Close()
			if err := client.Part(t.Context(), "mag-1", "object", digest, 0, int64(len(object)), func(_ int64, body io.Reader) error {
				<-full // though nothing has been consumed
				return whole(t, asking{body, &asked}, object)
			}); err != nil || received.Load() != int64(len(object)) {
				t.Errorf("%d bytes came: %v", received.Load(), err)
			}
		})
	}
}

// whole takes an object, which must be whole.
func whole(t *testing.T, body io.Reader, object []byte) error {
	got, err := io.ReadAll(body)
	if err == nil && sha256.Sum256(got) != sha256.Sum256(object) {
		t.Error("other bytes came")
	}
	return err
}

// TestHeldUp: while the consumer of one answer holds it up, others are requested and arrive.
func TestHeldUp(t *testing.T) {
	t.Parallel()
	object := make([]byte, 3<<20)
	at, _ := serve(t, object, false)
	client := https.New(https.Config{URL: at, Connections: 4})
	defer client.Close()
	part := func(take func(int64, io.Reader) error) error {
		return client.Part(t.Context(), "mag-1", "object", sha256.Sum256(object), 0, int64(len(object)), take)
	}
	if err := part(func(_ int64, body io.Reader) error {
		var group errgroup.Group
		for range 3 {
			group.Go(func() error { return part(func(_ int64, body io.Reader) error { return whole(t, body, object) }) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		return whole(t, body, object)
	}); err != nil {
		t.Error(err)
	}
}

// asking counts what is asked for before it is there.
type asking struct {
	io.Reader
	asked *atomic.Int64
}

// Read implements io.Reader.
func (c asking) Read(p []byte) (int, error) {
	c.asked.Add(int64(len(p)))
	return c.Reader.Read(p)
}

// TestReadAheadGivesUp: what was read ahead for a consumer that stopped is dropped, and the client continues.
func TestReadAheadGivesUp(t *testing.T) {
	t.Parallel()
	object := make([]byte, 12<<20)
	at, _ := serve(t, object, false)
	client := https.New(https.Config{URL: at, Connections: 1})
	defer client.Close()
	part := func(take func(int64, io.Reader) error) error {
		return client.Part(t.Context(), "mag-1", "object", sha256.Sum256(object), 0, int64(len(object)), take)
	}
	for range 3 {
		if err := part(func(_ int64, body io.Reader) error {
			_, _ = io.ReadFull(body, make([]byte, 100_000))
			return io.ErrShortWrite
		}); err == nil {
			t.Error("the taker's error is lost")
		}
	}
	if err := part(func(_ int64, body io.Reader) error {
		n, err := io.Copy(io.Discard, body)
		if n != int64(len(object)) {
			t.Errorf("%d bytes came", n)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
