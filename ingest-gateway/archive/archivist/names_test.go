// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/wire"
)

// What lies under the name of an object that was purged, and is not its bytes, has a
// receipt of its own: no sweep has it removed.
func TestSweepKeepsOtherBytes(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	cfg := l.keeper("a")
	stop := l.run(cfg)
	n := l.named(camera, now, "big/x", "one")
	l.await("it is listed", func() bool { return l.is(n.ID, wire.StateCurrent) })
	l.ask(n, wire.StatePurged, "private")
	l.await("it is gone", func() bool { return l.is(n.ID, wire.StatePurged) && !l.there(n.Key) && len(l.removals()) == 0 })
	stop()

	other := l.notice(camera, object{now, "other"})
	other.Name, other.Key, other.ID = n.Name, n.Key, n.ID
	l.putNamed(other, "other")
	cfg = l.keeper("b")
	metrics := prometheus.NewRegistry()
	cfg.Metrics = metrics
	if err := l.kv(wire.CursorBucket(l.site)).Delete(t.Context(), wire.SweepCursorKey); err != nil { // it looks at the whole bucket
		t.Fatal(err)
	}
	l.run(cfg)
	l.await("the sweep found it", func() bool { return counted(t, metrics, "substorm_sweep_found_total", "Other") > 0 })
	want(t, "handed on to be removed", 0, max(0, counted(t, metrics, "substorm_sweep_found_total", "Purged")))
	if !l.there(n.Key) {
		t.Error("bytes that have a receipt are gone")
	}
}

func (l *lab) kv(bucket string) jetstream.KeyValue {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), bucket)
	if err != nil {
		l.t.Fatal(err)
	}
	return kv
}
