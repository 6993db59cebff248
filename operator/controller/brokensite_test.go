// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// sites are as many as a country has: each in a namespace of its own, with its own servers.
const sites = 10

// TestBrokenSite: while the object store and the JetStream of one Site hang, and while they turn
// connections away, what changes in the other Sites reaches their registries, however much
// changes in the broken one. It prints how long that took before and meanwhile.
func TestBrokenSite(t *testing.T) {
	broken := newWorld(t)
	broken.toStore, broken.toNATS = testenv.StartRelay(t, broken.minio.Address()), testenv.StartRelay(t, broken.nats.Address())
	for range sites - 1 {
		broken.neighbours = append(broken.neighbours, newWorldOn(t, broken.minio))
	}
	broken.start()
	gateways := make([]*gateway, sites)
	for i, w := range append([]*world{broken}, broken.neighbours...) {
		first, _, ports := w.ports()
		w.code = w.namespace
		w.applySite("hub", w.code)
		w.applyPool("pool", ports+", service: {type: ClusterIP}")
		w.applyInstrument("camera", first, "")
		gateways[i] = w.gateway("pool", "pool-0")
		gateways[i].awaitPort("camera", first)
	}
	for i, way := range []struct {
		is     string
		breaks func(*testenv.Relay)
	}{{"hangs", (*testenv.Relay).Hang}, {"is cut off", (*testenv.Relay).Cut}} {
		broken.awaits("Site", "hub", "ObjectStoreReachable", "True/Reachable")
		broken.awaits("Site", "hub", "JetStreamReachable", "True/Reachable")
		before := changesOf(gateways[1:], 3*i+1)
		way.breaks(broken.toStore)
		way.breaks(broken.toNATS)
		first, _, _ := broken.ports()
		for port := first + 1; port < first+5; port++ { // the registry's writer detects it by itself
			broken.applyInstrument(fmt.Sprintf("late-%d-%d", i, port), port+4*i, "")
		}
		meanwhile := changesOf(gateways[1:], 3*i+2)
		broken.awaitBroken()
		later := changesOf(gateways[1:], 3*i+3)
		t.Logf("changes in %d Sites: in the registry after %v; while one more Site %s after %v; once that is known after %v", sites-1, before, way.is, meanwhile, later)
		late := fmt.Sprintf("late-%d-%d", i, first+4)
		if _, err := gateways[0].entry(late); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Fatalf("what was declared in the broken Site is in its registry (%v): it is not broken, and this test shows nothing", err)
		}
		broken.toStore.Mend()
		broken.toNATS.Mend()
		gateways[0].awaitPort(late, first+4+4*i)
	}
}

// awaitBroken waits until a Site says that neither of its backends answers.
func (w *world) awaitBroken() {
	w.t.Helper()
	for _, condition := range []string{v1alpha1.ConditionObjectStoreReachable, v1alpha1.ConditionJetStreamReachable} {
		eventually(w.t, condition+" of the broken Site should be False", func() error {
			c := find(conditionsOf(w.object("Site", "hub")), condition)
			if c == nil || c.Status != metav1.ConditionFalse {
				return fmt.Errorf("it is %+v", c)
			}
			return nil
		})
	}
}

// took are times that changes took until their entries could be read.
type took struct{ middle, longest time.Duration }

func (t took) String() string {
	return fmt.Sprintf("%v in the middle, %v at most", t.middle, t.longest)
}

// changesOf changes the Instrument of each Site several times, all Sites at once, and waits for each entry.
func changesOf(gateways []*gateway, round int) took {
	gateways[0].t.Helper()
	all := make([][]time.Duration, len(gateways))
	var group errgroup.Group
	for i, g := range gateways {
		group.Go(func() error {
			first, _, _ := g.ports()
			for n := range 8 {
				began := time.Now()
				g.applyInstrument("camera", first, fmt.Sprintf(", limits: {maxConnections: %d}", 10*round+n))
				if err := g.hasLimit(10*round + n); err != nil {
					return err
				}
				all[i] = append(all[i], time.Since(began).Round(time.Millisecond))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		gateways[0].t.Fatal(err)
	}
	times := slices.Concat(all...)
	slices.Sort(times)
	return took{times[len(times)/2], times[len(times)-1]}
}

// hasLimit waits until the entry of the camera has a number of connections.
func (g *gateway) hasLimit(connections int) error {
	err := errors.New("it was never read")
	for range testenv.Attempts() {
		e, failed := g.entry("camera")
		if err = failed; err == nil && e.MaxConnections == connections {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it has %d", e.MaxConnections)
		}
	}
	return fmt.Errorf("%s: the entry of the camera should have %d connections: %w", g.namespace, connections, err)
}
