// SPDX-License-Identifier: Apache-2.0

package objectstore_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
)

// A list of a hostile server that does not end is read up to a limit, and the error says that it is none of S3.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	const head = `<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>`
	endless := map[string]string{"empty keys": strings.Repeat("<Contents></Contents>", 1000), "a long key": strings.Repeat("k", 16<<10), "folders": strings.Repeat("<CommonPrefixes></CommonPrefixes>", 1000)}
	for name, text := range endless {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.WriteString(w, head)
				for err == nil && r.Context().Err() == nil {
					var n int
					n, err = io.WriteString(w, text)
					sent.Add(int64(n))
				}
			}))
			defer server.Close()
			store, err := objectstore.Open(objectstore.Config{Endpoint: server.URL, Bucket: "bucket", Region: "us-east-1"})
			if err != nil {
				t.Fatal(err)
			}
			for _, failed := range store.List(t.Context(), "", "") {
				err = failed
			}
			if !errors.Is(err, objectstore.ErrNoS3) || !strings.Contains(err.Error(), "exceeds the limit of") {
				t.Errorf("%v", err)
			}
			if n := sent.Load(); n > 64<<20 { // of each of the tries
				t.Errorf("%d MiB were read", n>>20)
			}
		})
	}
}
