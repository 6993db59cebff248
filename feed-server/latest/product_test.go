// SPDX-License-Identifier: Apache-2.0

package latest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// An object that a program puts through a gateway is the latest, under the name that it gave,
// and so is the object that replaces it.
func TestProduct(t *testing.T) {
	t.Parallel()
	port := testenv.FreePort(t)
	product := wire.InstrumentEntry{
		UID: "uid", Generation: 1, Instrument: "keogram", MediaType: "image/png", CadenceMillis: 86_400_000, Versions: wire.VersionsKeep, Acknowledge: "Stored",
		MaxObjectSize: 1 << 20, MaxConnections: 10, RepeatWindowMillis: 86_400_000, SegmentAgeMillis: 600_000, SegmentSize: 64 << 20, Access: archivetest.Public,
		Listeners: []wire.ListenerEntry{{Protocol: wire.ProtocolHTTP, Port: uint16(port), IdleTimeoutMillis: 60_000, MaxAgeMillis: 3_600_000, UploadExpiryMillis: 3_600_000}},
	}
	l := newLab(t, product)
	testenv.StartGateway(t, testenv.GatewayOptions{Site: archivetest.Site, NATS: l.NATS, MinIO: l.MinIO, Bucket: archivetest.Bucket, Instruments: []wire.InstrumentEntry{product}})
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: archivetest.Site, NATS: l.NATS, MinIO: l.MinIO, Bucket: archivetest.Bucket})
	put := func(name, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, fmt.Sprintf("http://%s/in/keogram/%s", testenv.Loopback(port), name), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("put %s: %s", name, resp.Status)
		}
	}
	put("2026/11/21/day.png", "unfinished")
	a := until(l, "/latest/keogram", "unfinished")
	if at := a.Header.Get("Content-Location"); at != "/archive/keogram/n/2026/11/21/day.png" || a.Header.Get("Content-Type") != "image/png" {
		t.Errorf("the product is at %s: %v", at, a.Header)
	}
	events := follow(l, "/latest/keogram/events")
	if got := events.next(); got.Path != "n/2026/11/21/day.png" {
		t.Errorf("first there is %s", got.Path)
	}
	put("2026/11/21/day.png", "finished")
	until(l, "/latest/keogram", "finished")
	if got := events.next(); got.URL != "/archive/keogram/n/2026/11/21/day.png?version=2" || l.Get(got.URL).Body != "finished" {
		t.Errorf("then there is %s", got.URL)
	}
}
