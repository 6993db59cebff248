// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/operator/plan/workload"
)

// TestPoolMetrics: a pool has figures while all of its ready pods report, and none otherwise: something scales on them.
func TestPoolMetrics(t *testing.T) {
	w := newFeedWorld(t)
	w.rollOut()
	w.awaits("Site", "hub", "Ready", "True/Ready")
	labels := func() map[string]string {
		return map[string]string{workload.LabelName: workload.FeedServerProgram, workload.LabelInstance: "hub"}
	}
	has := func(what string, want map[string]float64) {
		t.Helper()
		eventually(t, what, func() error {
			if diff := cmp.Diff(want, w.poolMetrics("hub")); diff != "" {
				return fmt.Errorf("-want +got:\n%s", diff)
			}
			return nil
		})
	}
	figures := func(pods float64) map[string]float64 {
		return map[string]float64{"substorm_pool_connections": 3 * pods, "substorm_pool_event_streams": 2 * pods, "substorm_pool_bytes_per_second": 1000 * pods}
	}

	first := w.feedServer("feed-0")
	first.follow()
	w.readyPodOf(labels(), "feed-0", "192.0.2.1")
	has("the figures of one pod", figures(1))
	w.readyPodOf(labels(), "feed-1", "192.0.2.2")
	has("no figures while one of two pods has not reported", map[string]float64{})
	stop := w.feedServer("feed-1").follow()
	has("the figures of two pods", figures(2))
	stop()
	has("no figures while one of two pods is silent", map[string]float64{})

	w.readyPod("pool", "pool-0", "192.0.2.3")
	w.gateway("pool", "pool-0").follow()
	eventually(t, "the spool of a gateway", func() error {
		if is := w.poolMetrics("pool"); !maps.Equal(is, map[string]float64{"substorm_pool_spool_bytes": 0}) {
			return fmt.Errorf("%v", is)
		}
		return nil
	})
}

// summed are the metrics of pools that sum up the pods' reports of themselves; others show how a pool is scaled.
var summed = []string{"substorm_pool_connections", "substorm_pool_event_streams", "substorm_pool_bytes_per_second", "substorm_pool_spool_bytes"}

// poolMetrics are those of them that the operator exports of a pool now.
func (w *world) poolMetrics(pool string) map[string]float64 {
	w.t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	is := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range m.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if slices.Contains(summed, family.GetName()) && labels["pool"] == pool && labels["namespace"] == w.namespace {
				is[family.GetName()] = m.GetGauge().GetValue()
			}
		}
	}
	return is
}
