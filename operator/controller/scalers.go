// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/workload"
	"github.com/substorm/substorm/operator/surge/autoscale"
)

// fieldOwnerOfScale writes spec.replicas of pools whose driver is Operator. API servers do not accept a server-side apply of the scale
// subresource of custom resources, and note its last writer only if spec.replicas was applied before.
const fieldOwnerOfScale = workload.FieldOwner + "-autoscaler"

// scalers know the load of all pools, and request the pods of those whose driver is Operator. A look costs no request: it reads the pods'
// reports and the cache, and makes a request only if the number of pods changes.
type scalers struct {
	client client.Client
	links  *links
	wakers *wakers
	events events.EventRecorder
	cfg    autoscale.Config
	log    *slog.Logger
	now    func() time.Time

	mu    sync.Mutex
	pools map[resource]*scaler
}

// scaler is the loop of one pool.
type scaler struct {
	// uid is empty until the first look.
	uid types.UID
	// site whose pods it is of.
	site types.NamespacedName
	// load is the last known load, and heard its time; zero: none was known yet.
	load  autoscale.Load
	heard time.Time
	// loop is nil if another driver asks, and cfg is how it behaves.
	loop  *autoscale.Loop
	cfg   autoscale.Config
	asked autoscale.Asked
	// unknown is the last reported reason why the load is not known.
	unknown string
	// failed: the last try to ask did not succeed.
	failed bool
	// scale is the last plan.
	scale *autoscale.Scale
}

func newScalers(c client.Client, links *links, wakers *wakers, recorder events.EventRecorder, cfg autoscale.Config, log *slog.Logger, now func() time.Time) *scalers {
	return &scalers{client: c, links: links, wakers: wakers, events: recorder, cfg: cfg, log: log, now: now, pools: map[resource]*scaler{}}
}

// Start implements manager.Runnable: only the leader asks.
func (s *scalers) Start(ctx context.Context) error {
	for tick := time.NewTicker(wire.LoadReportInterval); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
			s.scalePools(ctx)
		}
	}
}

// scaled is a pool as a scaler sees it.
type scaled struct {
	resource
	object client.Object
	site   types.NamespacedName
	spec   *v1alpha1.Autoscaling
	// replicas is spec.replicas, and most the greatest that it may be.
	replicas, most int32
	pods           map[string]string
	reports        func(*reports) []autoscale.Report
	waker          *waker
}

func (s *scalers) scalePools(ctx context.Context) {
	pools, err := s.list(ctx)
	if err != nil {
		s.log.Warn("pools whose pods report their load cannot be listed", "error", err)
		return
	}
	standing := map[resource]bool{}
	for i := range pools {
		standing[pools[i].resource] = true
		if err := s.step(ctx, &pools[i]); ctx.Err() == nil {
			s.logFailure(pools[i].resource, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.pools {
		if !standing[r] {
			delete(s.pools, r)
		}
	}
}

// logFailure logs why a pool could not be scaled, once: it is tried again each second.
func (s *scalers) logFailure(pool resource, err error) {
	if apierrors.IsConflict(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.pools[pool]
	if of == nil {
		return
	}
	if err != nil && !of.failed {
		s.log.Warn("a pool could not be scaled", "kind", pool.kind, "name", pool.NamespacedName.String(), "error", err)
	}
	of.failed = err != nil
}

func (s *scalers) list(ctx context.Context) (pools []scaled, err error) {
	var gateways v1alpha1.IngestGatewayList
	if err := s.client.List(ctx, &gateways, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range gateways.Items {
		g := &gateways.Items[i]
		pools = append(pools, scaled{resource{kindIngestGateway, client.ObjectKeyFromObject(g)}, g, types.NamespacedName{Namespace: g.Namespace, Name: g.Spec.SiteRef.Name},
			&g.Spec.Autoscaling, plan.GatewayReplicas(g), plan.MaxGateways, workload.PodLabels(g.Name),
			func(r *reports) []autoscale.Report { return plan.GatewayLoads(r.ofPool(g.Name)) }, &s.wakers.gateways})
	}
	var servers v1alpha1.FeedServerList
	if err := s.client.List(ctx, &servers, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range servers.Items {
		f := &servers.Items[i]
		pools = append(pools, scaled{resource{kindFeedServer, client.ObjectKeyFromObject(f)}, f, types.NamespacedName{Namespace: f.Namespace, Name: f.Spec.SiteRef.Name},
			&f.Spec.Autoscaling, plan.FeedServerReplicas(f), plan.MaxFeedServers, workload.FeedServerOf(nil, f).Selector(),
			func(r *reports) []autoscale.Report { return plan.FeedServerLoads(f.Name, r.ofFeedServers()) }, &s.wakers.servers})
	}
	return pools, nil
}

// step takes the reports of a pool's pods, and requests as many pods as the load needs. While no pod reports, it requests nothing: an
// unknown load neither raises nor lowers the number.
func (s *scalers) step(ctx context.Context, p *scaled) error {
	ready, err := s.ready(ctx, p)
	if err != nil {
		return err
	}
	now := s.now()
	load, known := autoscale.Sum(ready, p.reports(s.links.facts(p.site).reports), now)
	asked, wake := s.decide(p, load, known, int32(len(ready)), now)
	if wake {
		p.waker.wake(p.NamespacedName)
	}
	if !known || asked == nil || asked.Replicas == p.replicas || p.object.GetDeletionTimestamp() != nil {
		return nil
	}
	return s.ask(ctx, p, *asked)
}

// ready names the pods that are.
func (s *scalers) ready(ctx context.Context, p *scaled) (names []string, err error) {
	var pods corev1.PodList
	if err := s.client.List(ctx, &pods, client.InNamespace(p.Namespace), client.MatchingLabels(p.pods), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if workload.PodReady(&pods.Items[i]) {
			names = append(names, pods.Items[i].Name)
		}
	}
	return names, nil
}

// decide returns how many pods are requested, nil if another driver requests them, and whether a status must be updated.
func (s *scalers) decide(p *scaled, load autoscale.Load, known bool, ready int32, now time.Time) (asked *autoscale.Asked, wake bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.pools[p.resource]
	if of == nil || of.uid != p.object.GetUID() && of.uid != "" {
		of = &scaler{}
		s.pools[p.resource] = of
	}
	of.uid, of.site = p.object.GetUID(), p.site
	if known {
		wake = of.heard.IsZero()
		of.load, of.heard = load, now
	}
	if p.spec.Driver != v1alpha1.DriverOperator {
		of.loop = nil
		return nil, false
	}
	if cfg := plan.LoopConfig(s.cfg, p.spec); of.loop == nil || cfg != of.cfg {
		begin := p.replicas
		if of.loop != nil && of.unknown == "" { // the manifest that changed the loop may have set spec.replicas, too
			begin = of.asked.Replicas
		}
		of.loop, of.cfg = autoscale.New(cfg, max(1, begin), now), cfg
	}
	if known {
		of.loop.Add(load)
	}
	of.asked = of.loop.Decide(now, ready)
	of.asked.Replicas = min(of.asked.Replicas, p.most)
	was := of.unknown
	if of.unknown = ""; !of.heard.IsZero() {
		of.unknown = plan.LoadUnknown(of.heard, now)
	}
	return &of.asked, wake || was != of.unknown
}

// ask writes through /scale, as any driver does. The version keeps it from undoing what another client has written meanwhile.
func (s *scalers) ask(ctx context.Context, p *scaled, asked autoscale.Asked) error {
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, ResourceVersion: p.object.GetResourceVersion()},
		Spec: autoscalingv1.ScaleSpec{Replicas: asked.Replicas}}
	err := s.client.SubResource("scale").Update(ctx, p.object, client.WithSubResourceBody(scale), client.FieldOwner(fieldOwnerOfScale))
	if err != nil {
		return fmt.Errorf("scale %s %s to %d: %w", p.kind, p.NamespacedName, asked.Replicas, err)
	}
	s.log.Info("scaled a pool", "kind", p.kind, "name", p.NamespacedName.String(), "was", p.replicas, "is", asked.Replicas, "because", asked.Why())
	s.events.Eventf(p.object, nil, corev1.EventTypeNormal, v1alpha1.ReasonRescaled, "Scale", "%d pods are asked for, and %d were: %s", asked.Replicas, p.replicas, asked.Why())
	return nil
}

// loopOf returns what a pool's loop requests; nil if there is no loop, or if it has received no load yet.
func (s *scalers) loopOf(kind string, pool types.NamespacedName) *plan.Loop {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.pools[resource{kind, pool}]
	if of == nil || of.loop == nil || of.heard.IsZero() {
		return nil
	}
	return &plan.Loop{Asked: autoscale.Count{Replicas: of.asked.Replicas, Why: of.asked.Why()}, Unknown: of.unknown}
}

// note keeps a plan for metrics.
func (s *scalers) note(kind string, pool types.NamespacedName, scale autoscale.Scale) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := resource{kind, pool}
	if s.pools[r] == nil {
		s.pools[r] = &scaler{}
	}
	s.pools[r].scale = &scale
}
