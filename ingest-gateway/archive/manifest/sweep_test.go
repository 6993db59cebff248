// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/ingest-gateway/archive/deletion"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// What is being received lies in staging, and stays there when the archivist's clock jumps a
// year forward.
func TestStagingAndAClockThatJumps(t *testing.T) {
	const site = "thule"
	a := manifesttest.New(t, site)
	log, lease, metrics := slog.New(slog.DiscardHandler), manifesttest.Lease{Store: a.Store}, NewMetrics(prometheus.NewRegistry())
	deleter := deletion.New(deletion.Config{Site: site, Gateway: "gateway-0", Incarnation: "one", Store: a.Store, Lease: lease,
		Log: log, Metrics: deletion.NewMetrics(prometheus.NewRegistry())})
	s := NewSweeper(SweepConfig{Site: site, Gateway: "gateway-0", JetStream: a.JetStream, Store: a.Store, Lease: lease, Deleter: deleter, Log: log, Metrics: metrics},
		New(Config{Site: site, Metrics: metrics}))
	staged := wire.StagingKey(site, "camera", "1")
	a.Put(staged, []byte("half of it"))
	upload, err := a.Store.NewUpload(t.Context(), wire.StagingKey(site, "camera", "2"), objectstore.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	was := s.cursor
	if err := s.sweep(t.Context(), time.Now().UTC().AddDate(1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if s.cursor != was {
		t.Errorf("the sweep goes on from %+v", s.cursor)
	}
	if len(a.Keys(staged)) != 1 {
		t.Error("an object that is being received was removed")
	}
	if err := upload.Part(t.Context(), 1, strings.NewReader("all of it"), 9, wire.Digest{}); err != nil {
		t.Errorf("an upload in parts was aborted: %v", err)
	}
	if err := s.removeLeftovers(t.Context(), time.Now().UTC()); err != nil || len(a.Keys(staged)) != 1 {
		t.Errorf("after it was corrected: %v", err)
	}
}
