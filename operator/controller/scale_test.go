// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// spooling reports every interval as follow does, with what a spool holds.
func (g *gateway) spooling(objects *atomic.Int64) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	started, oldest := time.Now(), time.Now().Add(-time.Hour)
	go func() {
		defer close(done)
		for {
			c, err := g.complete()
			if n := objects.Load(); err == nil {
				s := &wire.SpoolStatus{Objects: n, Bytes: 1000 * n, Size: 1 << 30}
				if n > 0 {
					s.Oldest = &oldest
				}
				g.report(wire.GatewayStatus{Revision: c.Revision, StartedAt: started, Incarnation: "one", Node: "worker-7", Spool: s})
			}
			select {
			case <-quit:
				return
			case <-time.After(wire.GatewayReportInterval / 4):
			}
		}
	}()
	stop = func() {
		select {
		case <-quit:
		default:
			close(quit)
		}
		<-done
	}
	g.t.Cleanup(stop)
	return stop
}

// asksFor waits until the StatefulSet asks for so many pods.
func (w *world) asksFor(pool string, replicas int32) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("the StatefulSet asks for %d pods", replicas), func() error {
		if set := made(w, pool, pool, &appsv1.StatefulSet{}); *set.Spec.Replicas != replicas {
			return fmt.Errorf("it asks for %d", *set.Spec.Replicas)
		}
		return nil
	})
}

// spooled waits until a pool's status shows so many objects in its spools.
func (w *world) spooled(pool string, objects int64) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("the status shows %d objects in spools", objects), func() error {
		var s v1alpha1.IngestGatewayStatus
		if w.status("IngestGateway", pool, &s); s.Spool == nil || s.Spool.ObjectCount != objects {
			return fmt.Errorf("%+v", s.Spool)
		}
		return nil
	})
}

// lacks waits until a pool has no such condition.
func (w *world) lacks(pool, condition string) {
	w.t.Helper()
	eventually(w.t, "no condition "+condition, func() error {
		if c := find(conditionsOf(w.object("IngestGateway", pool)), condition); c != nil {
			return errors.New(c.Message)
		}
		return nil
	})
}

// A pod whose spool holds data stays, and is removed once the spool is empty. One that falls silent with a spool is reported until the
// spool is given up.
func TestPoolKeepsPodsWithSpools(t *testing.T) {
	w := newWorld(t)
	w.start()
	_, _, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports+", replicas: 3")
	w.asksFor("pool", 3)
	var spools [3]atomic.Int64
	var gateways [3]*gateway
	var stops [3]func()
	for i := range gateways {
		name := fmt.Sprintf("pool-%d", i)
		w.readyPod("pool", name, fmt.Sprintf("192.0.2.%d", 11+i))
		gateways[i] = w.gateway("pool", name)
		stops[i] = gateways[i].spooling(&spools[i])
	}
	spools[1].Store(3)
	w.rolledOut("pool", 3)
	w.awaits("IngestGateway", "pool", "Ready", "True/Ready")
	w.spooled("pool", 3)

	w.applyPool("pool", ports+", replicas: 1")
	w.awaits("IngestGateway", "pool", "ScaleDownHeld", "True/SpoolNotEmpty", "2 pods stay, and 1 are asked for", "pool-1 has 3 objects (2.9 KiB)")
	w.asksFor("pool", 2) // pool-2 has nothing to drain
	w.rolledOut("pool", 2)
	w.awaits("IngestGateway", "pool", "Ready", "False/ScaleDownHeld")
	spools[1].Store(0)
	w.asksFor("pool", 1)
	w.lacks("pool", "ScaleDownHeld")
	w.rolledOut("pool", 1)
	w.awaits("IngestGateway", "pool", "Ready", "True/Ready")

	// The node of the last one is lost with what it had receipted.
	spools[0].Store(5)
	w.spooled("pool", 5)
	stops[0]()
	w.awaits("IngestGateway", "pool", "SpoolStranded", "True/PodSilent", "pod pool-0 on node worker-7 has 5 objects (4.9 KiB)", "spool abandon")
	kv, err := gateways[0].js.KeyValue(t.Context(), wire.StatusBucket("hub"))
	if err == nil {
		err = kv.Delete(t.Context(), wire.GatewayStatusKey("pool-0"))
	}
	if err != nil {
		t.Fatal(err)
	}
	w.lacks("pool", "SpoolStranded")
}
