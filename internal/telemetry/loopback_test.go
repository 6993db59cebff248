// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/telemetry"
)

// TestLoopbackHost: on a loopback address, what is served without credentials is not served under another name.
func TestLoopbackHost(t *testing.T) {
	s, err := telemetry.NewServer(telemetry.ServerConfig{Address: "127.0.0.1:0", Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	for host, want := range map[string]int{
		s.Address(): 200, "127.0.0.1": 200, "localhost:9464": 200, "LOCALHOST.": 200, "site.localhost": 200, "[::1]:9464": 200,
		"attacker.example": 421, "attacker.example:9464": 421, "localhost.attacker.example": 421, "192.0.2.1": 421, "": 421,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Address()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Host = host; host == "" {
			r.Host = "." // a Host that names nothing
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("Host %q is answered with %d, want %d", r.Host, resp.StatusCode, want)
		}
	}
}
