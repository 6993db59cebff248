// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A program that runs apart and answers no more is ended, and says so; one that has not answered yet, and one of this process, are not.
func TestGuard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers, hangs bool
		silence        time.Duration
		ended          bool
	}{
		"it hangs":                  {true, true, 60 * time.Millisecond, true},
		"it has not answered yet":   {false, true, 60 * time.Millisecond, false},
		"it answers":                {true, false, time.Minute, false},
		"it is one of this process": {true, true, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked, alive atomic.Int64
			done := make(chan struct{})
			program := func(ctx context.Context, arguments []string) error {
				listener, err := net.Listen("tcp", arguments[0])
				if err != nil {
					return err
				}
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if asked.Add(1) == 20 && !c.ended { // several times its silence
						close(done)
					}
					switch {
					case r.URL.Path != "/healthz":
						http.Error(w, "not ready", http.StatusServiceUnavailable) // and is soon asked again
					case !c.answers || c.hangs && alive.Add(1) > 1:
						<-done
					}
				})}
				defer server.Close()
				go func() { _ = server.Serve(listener) }()
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-done:
					return nil
				}
			}
			p := &process{pod: &pod{name: types.NamespacedName{Name: name}, once: true}, program: program, silence: c.silence, changed: func() {},
				override: func(s Started) []string { return []string{s.Health} }, log: slog.New(slog.DiscardHandler)}
			if c.ended {
				defer close(done)
			}
			err := p.once(t.Context())
			if silent := new(silentError); c.ended != errors.As(err, &silent) || !c.ended && err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
