// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
)

// TestTurns: who finds no turn in time is asked to come again, and a turn that ends is
// another's.
func TestTurns(t *testing.T) {
	h := &Handler{turns: endpoint.NewTurns(1)}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, Path+"/data", nil)
	done, p := h.turn(r)
	if p != nil {
		t.Fatalf("%+v", p)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, p := h.turn(r.WithContext(short)); p == nil || p.http != http.StatusServiceUnavailable || p.retry == 0 {
		t.Errorf("%+v", p)
	}
	done()
	if _, p := h.turn(r); p != nil {
		t.Errorf("%+v", p)
	}
}
