// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestAlive: a program that does not answer, or says that it cannot continue, is named; one that does not listen yet, or that runs in a
// process of its own, is none of these.
func TestAlive(t *testing.T) {
	silent := make(chan struct{})
	asked := make(chan struct{}, 1)
	serve := func(handler http.HandlerFunc) string {
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	well := serve(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
	})
	ill := serve(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no memory left", http.StatusServiceUnavailable)
	})
	hangs := serve(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-silent })
	t.Cleanup(func() { close(silent) }) // before its server closes
	gone, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	program := "gateway"
	alive := func(ctx context.Context, healths ...string) error {
		p := New(Config{Apart: []string{"mover"}})
		for i, at := range healths {
			p.running[types.NamespacedName{Namespace: "aurora", Name: string(rune('a' + i))}] = &process{pod: &pod{program: program}, state: state{health: at}}
		}
		return p.Alive(ctx)
	}
	if err := alive(t.Context(), well, gone, ""); err != nil {
		t.Errorf("all is well: %v", err)
	}
	if err := alive(t.Context(), well, ill); err == nil || !strings.Contains(err.Error(), "aurora/b") || !strings.Contains(err.Error(), "no memory left") {
		t.Errorf("one is ill: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }() // its time is over
	if err := alive(ctx, well, hangs); err == nil || !strings.Contains(err.Error(), "aurora/b") {
		t.Errorf("one hangs: %v", err)
	}
	program = "mover"
	if err := alive(t.Context(), ill); err != nil {
		t.Errorf("one that runs apart is ill: %v", err)
	}
}
