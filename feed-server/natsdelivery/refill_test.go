// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	archivist "github.com/substorm/substorm/archivist/worker"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// archive runs a Site's archivist.
func (l *lab) archive(store objectstore.Store) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- archivist.Run(ctx, archivist.Config{Site: site, Pod: "gateway-0", Incarnation: "incarnation-1", JetStream: l.bus.JetStream(l.t), Store: store,
			Settings:     func(string) (wire.InstrumentEntry, bool) { return wire.InstrumentEntry{RepeatWindowMillis: 1000}, true },
			PartInterval: 200 * time.Millisecond, SweepInterval: time.Hour, ScratchDir: l.t.TempDir(),
			Log: slog.New(slog.NewTextHandler(testWriter{l.t}, nil)).With("pod", "archivist"), Metrics: prometheus.NewRegistry()})
	}()
	l.t.Cleanup(func() { cancel(); <-done })
}

// The stream of notices is deleted by hand. The operator recreates it and the durables, the
// archivist announces again what the manifests list, and a consumer of mode All gets a gap record
// and all notices, by their old ids.
func TestNoticesDeletedByHand(t *testing.T) {
	l, _ := oneServer(t)
	store := testenv.SharedBucket(t)
	l.archive(store)
	entry := wire.ConsumerEntry{Consumer: "model", NoTelemetry: true, Flow: wire.FlowEntry{Mode: wire.FlowAll}}
	l.declare(entry)
	l.serve("pod-0")
	k := newTaken()
	stop := consume(t, l.connect("model"), wire.NoticeStream(site), "model", k, 0, nil)
	const count = 500
	for i := range count {
		l.archived(store, camera, i)
	}
	listed := func() (n int) {
		for _, err := range manifest.Day(t.Context(), store, site, camera, wire.DayOf(time.Now())) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	testenv.Await(t, "all objects are listed", func() bool { return listed() == count })
	testenv.Await(t, "some are taken", func() bool { return k.count("notice") > count/2 })
	stop()
	taken := len(k.times())

	if err := l.js.DeleteStream(t.Context(), wire.NoticeStream(site)); err != nil {
		t.Fatal(err)
	}
	testenv.CreateSite(t, l.js, site)
	if _, err := l.js.UpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: wire.LeaseBucket(site), TTL: leaseTTL, History: 1, Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	l.makeDurable(l.consumers["model"], wire.NoticeStream(site), wire.ResumeToken{})
	again := newTaken()
	consume(t, l.connect("model"), wire.NoticeStream(site), "model", again, 0, nil)
	testenv.Await(t, "all notices and the gap record are given", func() bool { return again.count("notice") == count && len(again.allGaps()) > 0 })
	l.archived(store, camera, count)
	testenv.Await(t, "and what comes then", func() bool { return again.count("notice") == count+1 })
	same(t, "notices", upTo(count+1), again.distinct("notice"))
	if gaps := again.allGaps(); len(gaps) != 1 || gaps[0].Reason != wire.GapStreamRecreated {
		t.Errorf("gap records %+v", gaps)
	}
	for id, times := range again.times() {
		if times != 1 {
			t.Errorf("%s came %d times", id, times)
		}
	}
	for id := range k.times() {
		if again.times()[id] != 1 {
			t.Errorf("%s has another id now", id)
		}
	}
	t.Logf("%d were taken before", taken)
}

// archived stores an object as a gateway does, and announces it.
func (l *lab) archived(store objectstore.Store, instrument string, number int) {
	l.t.Helper()
	n := l.notice(instrument, number)
	metadata, err := wire.ObjectMetadata(n)
	if err != nil {
		l.t.Fatal(err)
	}
	body := fmt.Sprintf("%05d", number)
	err = store.Put(l.t.Context(), n.Key, strings.NewReader(body), int64(len(body)), objectstore.PutOptions{
		ContentType: n.MediaType, Metadata: metadata, Digest: n.Digest, CreateOnly: true})
	if err != nil {
		l.t.Fatal(err)
	}
	l.publishNotice(n)
}
