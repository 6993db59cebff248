// SPDX-License-Identifier: Apache-2.0

package https_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/https"
)

// TestPartGoesOn: where a link breaks, only what is left of a part is asked for.
func TestPartGoesOn(t *testing.T) {
	t.Parallel()
	const cut = 1 << 20
	object := make([]byte, 5*cut/2)
	_, _ = rand.NewChaCha8([32]byte{}).Read(object)
	digest := wire.Digest(sha256.Sum256(object))
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Header.Get("Range"))
		mu.Unlock()
		w.Header().Set("ETag", `"`+digest.String()+`"`)
		http.ServeContent(&cutting{w, cut}, r, "", time.Time{}, bytes.NewReader(object))
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := https.New(https.Config{URL: at, Connections: 1})
	defer client.Close()
	got := make([]byte, 0, len(object))
	err = client.Part(t.Context(), "mag-1", "object", digest, 0, int64(len(object)), func(had int64, body io.Reader) error {
		rest, err := io.ReadAll(body)
		got = append(got[:had], rest...)
		return err
	})
	if err != nil || !bytes.Equal(got, object) {
		t.Errorf("%d bytes came of %d, or other ones: %v", len(got), len(object), err)
	}
	if want := []string{"bytes=0-2621439", "bytes=1048576-2621439", "bytes=2097152-2621439"}; !slices.Equal(asked, want) {
		t.Errorf("it asked for %q, want %q", asked, want)
	}
}

// cutting ends the connection after so many bytes of an answer.
type cutting struct {
	http.ResponseWriter
	left int
}

// Write implements io.Writer.
func (c *cutting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 {
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}
