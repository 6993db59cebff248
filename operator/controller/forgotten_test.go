// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestDeletedSitesAreForgotten: a deleted Site leaves no series, and nothing in memory once nothing names it any more; one that is created
// again under its name starts over.
func TestDeletedSitesAreForgotten(t *testing.T) {
	w := newWorld(t)
	w.start()
	first, _, ports := w.ports()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: w.namespace, Name: name} }
	for _, round := range []string{"first", "second"} {
		w.applySite("hub", "hub")
		w.applyPool("pool", ports+", service: {type: ClusterIP}")
		w.applyInstrument("camera", first, "")
		g := w.gateway("pool", "pool-0")
		g.awaitPort("camera", first)
		stop := g.follow()
		g.received("camera", 0, 1)
		w.awaits("Instrument", "camera", "DataFlowing", "True/Flowing")
		w.awaitSeries(round+": a Site, its pod and its Instrument", 1, map[string]bool{"hub": true, "pool": true, "camera": true})

		stop()
		w.removeSite("hub")
		w.awaits("Instrument", "camera", "Accepted", "False/SiteNotFound")
		w.awaitSeries(round+": the Instrument names the Site still", 1, map[string]bool{"hub": false, "camera": false})

		w.remove(&v1alpha1.Instrument{ObjectMeta: meta("camera")})
		w.remove(&v1alpha1.IngestGateway{ObjectMeta: meta("pool")})
		w.remove(&corev1.Secret{ObjectMeta: meta("pool-jetstream")})
		w.awaitSeries(round+": nothing names it", 0, map[string]bool{"hub": false, "pool": false, "camera": false})
	}
}

// awaitSeries waits until the operator remembers so many Sites, and shows series of some names
// and none of others.
func (w *world) awaitSeries(what string, sites float64, shown map[string]bool) {
	w.t.Helper()
	eventually(w.t, what, func() error {
		families, err := w.metrics.Gather()
		if err != nil {
			return err
		}
		series := map[string]string{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					series[l.GetValue()] = f.GetName()
				}
				if is := m.GetGauge().GetValue(); f.GetName() == "substorm_operator_known_sites" && is != sites {
					return fmt.Errorf("something is kept of %v Sites, and should be of %v", is, sites)
				}
			}
		}
		for name, want := range shown {
			if metric, is := series[name]; is != want {
				return fmt.Errorf("series of %q: %v (%s), should be %v", name, is, metric, want)
			}
		}
		return nil
	})
}
