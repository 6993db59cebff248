// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/holder"
	"github.com/substorm/substorm/internal/manifest/manifesttest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

func newSweeper(a *manifesttest.Archive) *Sweeper {
	log, lease, metrics := slog.New(slog.DiscardHandler), manifesttest.Lease{Store: a.Store}, NewMetrics(prometheus.NewRegistry())
	deleter := deletion.New(deletion.Config{
		Base:    holder.Base{Site: a.Site, Pod: "gateway-0", Incarnation: "one", Store: a.Store, Lease: lease, Log: log},
		Metrics: deletion.NewMetrics(prometheus.NewRegistry()),
	})
	return NewSweeper(SweepConfig{Base: holder.Base{Site: a.Site, Pod: "gateway-0", JetStream: a.JetStream, Store: a.Store, Lease: lease, Log: log}, Deleter: deleter, Metrics: metrics},
		New(Config{Base: holder.Base{Site: a.Site}, Metrics: metrics}))
}

// A leftover that the store refuses to delete holds up no other.
func TestLeftoverThatCannotBeDeleted(t *testing.T) {
	const site = "thule"
	a := manifesttest.New(t, site)
	s := newSweeper(a)
	stuck, upload := wire.StagingKey(site, "camera", "1"), wire.UploadInfoKey(site, "camera", "0123456789abcdef0123456789abcdef")
	for _, key := range []string{stuck, wire.StagingKey(site, "camera", "2"), upload, wire.UploadInfoKey(site, "camera", "1123456789abcdef0123456789abcdef")} {
		a.Put(key, []byte("half of it"))
	}
	a.Store.Refuse = func(key string, deletes bool) error {
		if deletes && (key == stuck || key == upload) {
			return objectstore.ErrAccessDenied
		}
		return nil
	}
	later := time.Now().UTC().Add(2 * leftoverAge)
	if err := s.removeLeftovers(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	left := a.Keys(wire.StagingPrefix(site))
	if want := []string{stuck, upload}; !slices.Equal(slices.Sorted(slices.Values(left)), slices.Sorted(slices.Values(want))) {
		t.Errorf("left are %v, want %v", left, want)
	}
	if n := testutil.ToFloat64(s.cfg.Metrics.found.WithLabelValues(findingStaging)); n != 2 {
		t.Errorf("%v are counted as removed", n)
	}
	a.Store.Refuse = nil
	if err := s.removeLeftovers(t.Context(), later); err != nil || len(a.Keys(wire.StagingPrefix(site))) != 0 {
		t.Errorf("they stay although the store lets them go: %v", err)
	}
}

// The members of a pack are announced, unless its gateway says that it could not store the pack.
func TestSweepOfFailedPack(t *testing.T) {
	const site = "thule"
	a := manifesttest.New(t, site)
	s := nextSweeper(a, 0)
	at := time.Now().UTC().Truncate(time.Millisecond)
	var keys []string
	for number := range uint64(2) {
		key := wire.PackKey(site, at, "gateway-0", "one", number+1)
		putPack(a, key, "camera", at, fmt.Sprint("frame ", number))
		keys = append(keys, key)
	}
	report, err := wire.Encode(wire.FailedPacks{Gateway: "gateway-0", Packs: keys[:1]})
	if err == nil {
		_, err = a.KV(wire.StatusBucket(site)).Put(t.Context(), wire.FailedPacksKey("gateway-0"), report)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.sweepPacks(t.Context(), at.Add(time.Hour), true); err != nil {
		t.Fatal(err)
	}
	stream, err := a.JetStream.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	n, err := wire.Decode[wire.Notice](m.Data)
	if err != nil || n.Key != keys[1] || stream.CachedInfo().State.Msgs != 1 {
		t.Errorf("of %d notices the first is of %q, %v", stream.CachedInfo().State.Msgs, n.Key, err)
	}
}

// Data that is being received is in staging, and stays there when the archivist's clock jumps a year forward.
func TestStagingAndAClockThatJumps(t *testing.T) {
	const site = "thule"
	a := manifesttest.New(t, site)
	s := newSweeper(a)
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
