// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/archive"
	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
)

// The answer about a day whose manifest is lost says that, and not that the bytes of objects are damaged.
func TestManifestIsMissing(t *testing.T) {
	t.Parallel()
	a := archivetest.New(t, wire.InstrumentEntry{Instrument: "a", Access: archivetest.Public})
	r := a.Put("a", "a.txt", "0123456789")
	a.Wait(r)
	a.List()
	mux := http.NewServeMux()
	for pattern, serve := range archive.New(archive.Config{Site: archivetest.Site, Catalog: archive.Manifests{Catalog: a.Catalog}, Store: a.Store,
		AccessCheck: a.AccessCheck, Logger: a.Logger, Metrics: prometheus.NewRegistry()}).Endpoints() {
		mux.HandleFunc(pattern, serve)
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	l := &lab{t: t, url: server.URL}
	for info, err := range a.Store.List(t.Context(), wire.ManifestPrefix(archivetest.Site, "a", wire.DayOf(r.ReceivedAt)), "") {
		if err == nil {
			err = a.Store.Delete(t.Context(), info.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := l.get("/archive/a/a.txt")
	got.want(t, "without a manifest", 502)
	if !strings.Contains(got.body, "manifest") || !strings.Contains(got.body, "substorm archive rebuild") || strings.Contains(got.body, "those that were received") {
		t.Errorf("the answer is %s", got.body)
	}
}
