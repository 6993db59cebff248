// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// libraryLog writes what the libraries of Kubernetes log, except for errors that are no failure of this process or are reported elsewhere.
type libraryLog struct {
	slog.Handler
	// stopping: the process stops.
	stopping *atomic.Bool
}

// Handle implements slog.Handler.
func (l libraryLog) Handle(ctx context.Context, r slog.Record) error {
	if l.stopping.Load() && r.Message == "failed to get informer from cache" { // controller-runtime, of a cache that was stopped before it was filled
		return nil
	}
	ofClient := false
	r.Attrs(func(a slog.Attr) bool {
		ofClient = a.Key == "err" && isOfClient(a.Value.String())
		return !ofClient
	})
	if ofClient {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// isOfClient reports whether an error of apiserver was also sent to the client, such as an unknown field in what is applied, or says that the
// client no longer waits for the response.
func isOfClient(text string) bool {
	return strings.HasPrefix(text, "apiserver received an error that is not an metav1.Status") ||
		strings.HasPrefix(text, "apiserver was unable to write") && strings.HasSuffix(text, "http2: stream closed")
}

// WithAttrs implements slog.Handler.
func (l libraryLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return libraryLog{l.Handler.WithAttrs(attrs), l.stopping}
}

// WithGroup implements slog.Handler.
func (l libraryLog) WithGroup(name string) slog.Handler {
	return libraryLog{l.Handler.WithGroup(name), l.stopping}
}

// redirectLibraryLogs has the libraries of Kubernetes write to our log.
func (s *site) redirectLibraryLogs() {
	s.libraries = libraryLog{s.log.Handler(), &s.stopping}
	klog.SetSlogLogger(slog.New(s.libraries))
	ctrl.SetLogger(logr.FromSlogHandler(s.libraries))
}
