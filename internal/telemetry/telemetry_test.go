// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

func TestServer(t *testing.T) {
	var ready atomic.Bool
	s, err := NewServer(ServerConfig{
		Address: "127.0.0.1:0", Metrics: NewRegistry("test-program"),
		Ready: func(context.Context) error {
			if !ready.Load() {
				return errors.New("the registry was never seen")
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()

	expect := func(path string, status int, part string) {
		t.Helper()
		resp, err := http.Get("http://" + s.Address() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != status || !strings.Contains(string(body), part) {
			t.Errorf("GET %s: %d %q, want %d with %q", path, resp.StatusCode, body, status, part)
		}
	}
	expect("/healthz", http.StatusOK, "ok")
	expect("/readyz", http.StatusServiceUnavailable, "the registry was never seen")
	ready.Store(true)
	expect("/readyz", http.StatusOK, "ok")
	expect("/metrics", http.StatusOK, `program="test-program"`)
	expect("/metrics", http.StatusOK, "go_goroutines")
	expect("/else", http.StatusNotFound, "")

	if _, err := NewServer(ServerConfig{Address: s.Address(), Metrics: NewRegistry("second")}); err == nil {
		t.Error("a second server listens on the same address")
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Serve after its context ended: %v", err)
	}
	if _, err := http.Get("http://" + s.Address() + "/healthz"); err == nil {
		t.Error("the server answers after Serve returned")
	}
}

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	log, err := NewLogger(&out, "warn")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("not shown")
	log.Warn("shown", "instrument", "kiruna-asc")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%q is not one JSON line: %v", out.String(), err)
	}
	if line["msg"] != "shown" || line["instrument"] != "kiruna-asc" || line["level"] != "WARN" {
		t.Errorf("line %v", line)
	}
	if _, err := NewLogger(&out, "loud"); err == nil {
		t.Error("level \"loud\" is accepted")
	}
}
