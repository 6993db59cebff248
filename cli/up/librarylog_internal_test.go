// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// TestLibraryLog: a cache that cannot be filled is an error, unless the process stops; other errors are always logged.
func TestLibraryLog(t *testing.T) {
	var out bytes.Buffer
	s := &site{log: slog.New(slog.NewJSONHandler(&out, nil))}
	log := logr.FromSlogHandler(libraryLog{s.log.Handler(), &s.stopping}).WithName("source").WithValues("kind", "Site")
	logged := func() int { return strings.Count(out.String(), "\n") }
	informer := func() {
		log.Error(errors.New("Timeout: failed waiting for *v1.Deployment Informer to sync"), "failed to get informer from cache")
	}
	if informer(); logged() != 1 {
		t.Errorf("while the process runs: %s", out.String())
	}
	s.stopping.Store(true)
	if informer(); logged() != 1 {
		t.Errorf("while it stops: %s", out.String())
	}
	if log.Error(errors.New("disk"), "Unhandled Error"); logged() != 2 {
		t.Errorf("another error: %s", out.String())
	}
	const unable = "apiserver was unable to write a fallback application/json response: "
	if log.Error(errors.New(unable+"http2: stream closed"), "Unhandled Error"); logged() != 2 {
		t.Errorf("a client that no longer waits: %s", out.String())
	}
	if log.Error(errors.New(unable+"disk"), "Unhandled Error"); logged() != 3 {
		t.Errorf("another error of a response: %s", out.String())
	}
}
