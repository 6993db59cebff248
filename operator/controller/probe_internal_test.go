// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// TestProbe: a folder that answers is written every two minutes, to see that it can be, and at each look until it answers.
func TestProbe(t *testing.T) {
	cfg := objectstore.Config{Endpoint: objectstore.FolderEndpoint(filepath.Join(t.TempDir(), "objects")), Bucket: "archive"}
	if !cfg.IsFolder() || (objectstore.Config{Endpoint: "https://s3.example"}).IsFolder() {
		t.Fatal("a folder is taken for a server, or a server for a folder")
	}
	found, now := finding.Finding{Status: "True"}, time.Now()
	folder := probes{every: probeEvery(true)}
	for _, look := range []struct {
		after time.Duration
		found finding.Finding
		want  bool
	}{
		{0, finding.Finding{}, true},
		{tryEvery, found, false},
		{2*time.Minute - 1, found, false},
		{2 * time.Minute, found, true},
		{2*time.Minute + tryEvery, no(v1alpha1.ReasonUnreachable, "the disk is full"), true},
		{2*time.Minute + 2*tryEvery, found, false},
	} {
		if got := folder.due(look.found, now.Add(look.after)); got != look.want {
			t.Errorf("after %v, found %+v: %t", look.after, look.found, got)
		}
	}
	server := probes{every: probeEvery(false)}
	for range 2 {
		if !server.due(found, now) {
			t.Error("a server is not written at each look")
		}
	}
	store, err := objectstore.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := wanted{store: &cfg, marker: wire.SiteMarker{Code: "hub", UID: "uid"}}
	for _, probe := range []bool{false, true} {
		if f := tryObjectStore(t.Context(), store, want, probe); !f.OK() {
			t.Fatalf("%+v", f)
		}
		if _, err := store.Head(t.Context(), wire.StagingKey("hub", "operator", "probe")); errors.Is(err, objectstore.ErrNotFound) == probe {
			t.Errorf("with probe %t: %v", probe, err)
		}
	}
}
