// SPDX-License-Identifier: Apache-2.0

//go:build linux

package https_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/substorm/substorm/mirror-jobs/https"
)

// TestPath: what the kernel knows of the connection tells round trip and rate, as long as it is open.
func TestPath(t *testing.T) {
	const size = 8 << 20
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	received := 0
	client := https.New(https.Config{URL: at, Connections: 1, Received: func(n int) { received += n }})
	if seen, known := client.Path(); known {
		t.Errorf("without a connection it is %+v", seen)
	}
	if err := client.Get(t.Context(), "/", nil, func(answer *http.Response) error {
		for buffer := make([]byte, 64<<10); ; {
			if _, err := answer.Body.Read(buffer); err != nil {
				break
			}
		}
		seen, known := client.Path()
		if !known || seen.Connections != 1 || seen.RoundTripMicros <= 0 || seen.DeliveryBytesPerSecond <= 0 || seen.BufferBytes != seen.DeliveryBytesPerSecond*seen.RoundTripMicros/1e6 {
			t.Errorf("after %d bytes it is %+v", received, seen)
		}
		return nil
	}); err != nil || received != size {
		t.Fatalf("%d of %d bytes came: %v", received, size, err)
	}
	client.Close()
	if seen, known := client.Path(); known {
		t.Errorf("once it is closed it is %+v", seen)
	}
}
