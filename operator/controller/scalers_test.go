// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
	"github.com/substorm/substorm/operator/surge/autoscale"
)

// share is a number that several goroutines read.
type share struct{ bits atomic.Uint64 }

func (s *share) set(v float64) { s.bits.Store(math.Float64bits(v)) }
func (s *share) get() float64  { return math.Float64frombits(s.bits.Load()) }

// loaded reports as follow does, how full the pod's memory is, and what its spool holds.
func (g *gateway) loaded(fill *share, spooled *atomic.Int64) {
	started, oldest := time.Now(), time.Now().Add(-time.Hour)
	repeat(g.world, func() {
		c, err := g.complete()
		if err != nil {
			return
		}
		status := wire.GatewayStatus{Revision: c.Revision, StartedAt: started, Incarnation: "one", Spool: &wire.SpoolStatus{Size: 1 << 30}}
		if n := spooled.Load(); n > 0 {
			status.Spool = &wire.SpoolStatus{Objects: n, Bytes: 1000 * n, Size: 1 << 30, Oldest: &oldest}
		}
		if v := fill.get(); v >= 0 {
			status.Load = &wire.Load{Fill: map[string]float64{wire.BudgetMemory: v}}
		}
		g.report(status)
	})
}

// repeat does something several times as often as pods report, until the returned function is called, or the test ends.
func repeat(w *world, do func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			do()
			select {
			case <-quit:
				return
			case <-time.After(wire.LoadReportInterval / 3):
			}
		}
	}()
	stop = sync.OnceFunc(func() { close(quit); <-done })
	w.t.Cleanup(stop)
	return stop
}

// scales waits until a pool's status shows these numbers.
func (w *world) scales(kind, pool string, replicas, asked, floor, ceiling, held int32) v1alpha1.AutoscalingStatus {
	w.t.Helper()
	var s struct {
		Autoscaling v1alpha1.AutoscalingStatus `json:"autoscaling"`
	}
	want := []int32{replicas, asked, floor, ceiling, held}
	eventually(w.t, fmt.Sprintf("%s %s has the numbers %v", kind, pool, want), func() error {
		w.status(kind, pool, &s)
		a := &s.Autoscaling
		if a.Replicas == nil {
			return fmt.Errorf("it has none")
		}
		if is := []int32{*a.Replicas, *a.Asked.Replicas, *a.Floor.Replicas, *a.Ceiling.Replicas, *a.Held.Replicas}; fmt.Sprint(is) != fmt.Sprint(want) {
			return fmt.Errorf("it has %v: %+v", is, a)
		}
		return nil
	})
	return s.Autoscaling
}

// storms declares a source of space weather and one level, with a floor.
func (w *world) storms(kind string, floor int) {
	w.t.Helper()
	w.patchSite(fmt.Sprintf(`{"spec":{
		"spaceWeather":{"sources":[{"name":"kp","type":"Static","static":{"values":[{"quantity":"Kp","value":"6"}]}}]},
		"surge":{"levels":[{"name":"storm","anyOf":[{"allOf":[{"quantity":"Kp","atLeast":"5"}]}],"floors":[{"kind":%q,"replicas":%d}]}]}}}`, kind, floor))
}

// quick is a loop that needs seconds where another needs minutes.
func quick() autoscale.Config {
	cfg := autoscale.Defaults
	cfg.StableWindow, cfg.PanicWindow = 6*time.Second, 2*time.Second
	return cfg
}

// TestOperatorScalesGateways: when pods report load, the operator requests more through /scale, within floor and ceiling; the StatefulSet
// follows. A level of space weather is a floor. Missing reports lower nothing; less load does, after a while; a pod with a spool stays.
func TestOperatorScalesGateways(t *testing.T) {
	w := newWorld(t)
	w.autoscale = quick()
	w.start()
	_, _, ports := w.ports()
	w.applySite("hub", "hub")
	declare := func() {
		w.applyPool("pool", ports+", autoscaling: {driver: Operator, maxReplicas: 4, operator: {scaleDownDelay: 5s}}")
	}
	declare()
	w.asksFor("pool", 1)
	w.awaits("IngestGateway", "pool", v1alpha1.ConditionScalingActive, "Unknown/"+v1alpha1.ReasonLoadUnknown)
	var fills [4]share
	var spools [4]atomic.Int64
	begin := func(i int, fill float64) {
		name := fmt.Sprintf("pool-%d", i)
		fills[i].set(fill)
		w.readyPod("pool", name, fmt.Sprintf("192.0.2.%d", 11+i))
		w.gateway("pool", name).loaded(&fills[i], &spools[i])
	}
	begin(0, 0.5)
	w.awaits("IngestGateway", "pool", v1alpha1.ConditionScalingActive, "True/"+v1alpha1.ReasonLoadKnown)
	w.scales("IngestGateway", "pool", 1, 1, 1, 4, 0)

	fills[0].set(1)
	w.asksFor("pool", 2)
	begin(1, 1)
	w.asksFor("pool", 3)
	begin(2, 1)
	w.asksFor("pool", 4)
	begin(3, 1)
	is := w.scales("IngestGateway", "pool", 4, 6, 1, 4, 0)
	if is.Message == "" || is.Asked.Message == "" {
		t.Errorf("no words: %+v", is)
	}
	w.awaits("IngestGateway", "pool", v1alpha1.ConditionScalingLimited, "True/"+v1alpha1.ReasonAskedAboveCeiling, "6 pods are asked for", "there may be 4", "maxReplicas")

	declare() // as kubectl apply does, of a manifest without replicas
	w.awaits("IngestGateway", "pool", v1alpha1.ConditionScalingLimited, "True/"+v1alpha1.ReasonAskedAboveCeiling)
	w.scales("IngestGateway", "pool", 4, 6, 1, 4, 0)

	w.applyReplicas(ports, 6)
	w.scales("IngestGateway", "pool", 4, 6, 1, 4, 0)

	for i := range fills { // silence
		fills[i].set(-1)
	}
	w.awaits("IngestGateway", "pool", v1alpha1.ConditionScalingActive, "Unknown/"+v1alpha1.ReasonLoadUnknown, "as many pods are asked for as before")
	w.scales("IngestGateway", "pool", 4, 6, 1, 4, 0)

	spools[2].Store(7)
	w.storms("IngestGateway", 2)
	for i := range fills {
		fills[i].set(0.05)
	}
	w.scales("IngestGateway", "pool", 3, 1, 2, 4, 3)
	w.awaits("IngestGateway", "pool", "ScaleDownHeld", "True/SpoolNotEmpty", "3 pods stay, and 2 are asked for", "pool-2 has 7 objects")
	w.asksFor("pool", 3)
	spools[2].Store(0)
	w.asksFor("pool", 2)
	w.patchSite(`{"spec":{"surge":null}}`)
	w.asksFor("pool", 1)
	w.lacks("pool", v1alpha1.ConditionScalingLimited)
}

// applyReplicas applies a manifest with spec.replicas, as one that is scaled should not have it: the loop writes its number again, and no
// pod goes meanwhile. The next server-side apply of that number gets an error that names the owner of the field; one without it leaves the
// field to the operator.
func (w *world) applyReplicas(ports string, loop int32) {
	w.t.Helper()
	manifest := func(replicas string) string {
		return fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: pool}
spec: {siteRef: {name: hub}%s%s, autoscaling: {driver: Operator, maxReplicas: 4, operator: {scaleDownDelay: 5s}}}
`, ports, replicas)
	}
	was := made(w, "pool", "pool", &appsv1.StatefulSet{}).Generation
	w.apply(manifest(", replicas: 1"))
	eventually(w.t, "the loop's number is written again", func() error {
		if is, _, _ := unstructured.NestedInt64(w.object("IngestGateway", "pool").Object, "spec", "replicas"); is != int64(loop) {
			return fmt.Errorf("spec.replicas is %d", is)
		}
		return nil
	})
	if is := made(w, "pool", "pool", &appsv1.StatefulSet{}).Generation; is != was {
		w.t.Errorf("the StatefulSet was changed meanwhile: generation %d after %d", is, was)
	}
	if err := w.tryApply(manifest(", replicas: 1")); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "substorm-operator-autoscaler") {
		w.t.Errorf("another apply of spec.replicas: %v", err)
	}
	w.apply(manifest(""))
}

// TestOperatorScalesFeedServers: the same for a Deployment, where requests are refused for lack of space; a new operator continues from the
// number that the last one requested.
func TestOperatorScalesFeedServers(t *testing.T) {
	w := newWorld(t)
	w.autoscale = quick()
	w.startFeedWorld()
	w.apply(`
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: hub}
spec: {siteRef: {name: hub}, autoscaling: {driver: Operator, minReplicas: 2, maxReplicas: 6}}
`)
	w.awaitServers(2)
	w.readyServer("hub", "hub-0")
	s := w.feedServer("hub-0")
	var refused atomic.Int64
	repeat(w, func() {
		status := wire.FeedServerStatus{Pod: s.pod, FeedServer: "hub", Incarnation: "one", StartedAt: time.Now(), ReportedAt: time.Now(),
			Load: &wire.Load{Fill: map[string]float64{wire.BudgetConnections: 0.2}, Answered: 100, Refused: refused.Load()}}
		if err := s.put(wire.FeedServerStatusKey(s.pod), status); err != nil && t.Context().Err() == nil {
			t.Logf("report: %v", err)
		}
	})
	w.awaits("FeedServer", "hub", v1alpha1.ConditionScalingActive, "True/"+v1alpha1.ReasonLoadKnown)
	refused.Store(200) // three times what one pod can answer
	w.awaitServers(5)
	w.scales("FeedServer", "hub", 5, 5, 2, 6, 0)
	w.stop()
	refused.Store(0)
	w.start()
	w.awaits("FeedServer", "hub", v1alpha1.ConditionScalingActive, "True/"+v1alpha1.ReasonLoadKnown)
	w.scales("FeedServer", "hub", 5, 5, 2, 6, 0)
}

// TestOtherDriversScale: what something else writes to /scale is followed, within floor and ceiling.
func TestOtherDriversScale(t *testing.T) {
	w := newFeedWorld(t)
	w.applyServer("hub", ", replicas: 1, autoscaling: {driver: HorizontalPodAutoscaler, minReplicas: 2, maxReplicas: 5}")
	w.awaitServers(2)
	w.scaleTo("FeedServer", "hub", 4)
	w.awaitServers(4)
	w.scaleTo("FeedServer", "hub", 9)
	w.awaitServers(5)
	w.awaits("FeedServer", "hub", v1alpha1.ConditionScalingLimited, "True/"+v1alpha1.ReasonAskedAboveCeiling, "9 pods", "there may be 5")
	w.scaleTo("FeedServer", "hub", 1)
	w.awaitServers(2)
	w.storms("FeedServer", 4)
	w.awaitServers(4)
	w.storms("FeedServer", 8)
	w.awaitServers(5)
	w.awaits("FeedServer", "hub", v1alpha1.ConditionScalingLimited, "True/"+v1alpha1.ReasonFloorAboveCeiling, "level storm", "a floor of 8", "there may be 5")
}

// scaleTo writes to /scale, as a HorizontalPodAutoscaler does.
func (w *world) scaleTo(kind, pool string, replicas int32) {
	w.t.Helper()
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: pool}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if err := w.SubResource("scale").Update(w.t.Context(), w.object(kind, pool), client.WithSubResourceBody(scale), client.FieldOwner("horizontal-pod-autoscaler")); err != nil {
		w.t.Fatal(err)
	}
}

// readyServer makes a pod of a FeedServer and says that it is ready.
func (w *world) readyServer(server, name string) {
	w.t.Helper()
	w.readyPod(server, name, "192.0.2.99")
	pod := &corev1.Pod{}
	if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, pod); err != nil {
		w.t.Fatal(err)
	}
	pod.Labels[workload.LabelName] = workload.FeedServerProgram
	if err := w.Update(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
}
