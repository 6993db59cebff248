// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/surge/autoscale"
	"github.com/substorm/substorm/operator/surge/ceiling"
)

const (
	// spaceEvery is how often the space of the cluster is checked for changes. Pools are not woken for each pod of others.
	spaceEvery = 5 * time.Second
	// nodesPatience is how long the first decisions wait until nodes are known, unless the API server denies reading them. Without it, pods
	// would be created that find no node.
	nodesPatience = time.Minute
)

// spaces know what space the cluster has for the pods of pools: ResourceQuotas and claims from the manager's cache, and if an administrator
// has allowed it (--read-nodes) the nodes, with the pods on them, and volumes.
//
// Nodes have a cache of their own: the manager's starts nothing until all that it follows is known, and without the right nodes never are.
type spaces struct {
	client client.Client
	wakers *wakers
	log    *slog.Logger
	// shared is the manager's cache.
	shared cache.Cache
	// cache is nil if nodes are not to be read.
	cache cache.Cache
	// decided is closed once nodes are known, or have been waited for long enough.
	decided chan struct{}
	decide  func()
	// changed: something happened since nodes were last summed up.
	changed, synced atomic.Bool
	doubt           nodeDoubt

	mu    sync.Mutex
	nodes *ceiling.Nodes
}

func newSpaces(mgr ctrl.Manager, wakers *wakers, readNodes bool, log *slog.Logger) (*spaces, error) {
	s := &spaces{client: mgr.GetClient(), shared: mgr.GetCache(), wakers: wakers, log: log, decided: make(chan struct{})}
	s.decide = sync.OnceFunc(func() { close(s.decided) })
	if !readNodes {
		s.decide()
		return s, nil
	}
	var err error
	s.cache, err = cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: spaceOnly, DefaultWatchErrorHandler: s.fails,
	})
	if err != nil {
		return nil, fmt.Errorf("make a cache of nodes: %w", err)
	}
	return s, nil
}

// followed are the kinds whose right is one in the whole cluster.
func followed() []client.Object {
	return []client.Object{&corev1.Node{}, &corev1.Pod{}, &corev1.PersistentVolume{}, &storagev1.StorageClass{}}
}

// fails notes that a watch ended for another reason than that it always ends after some minutes. If the permission is missing, nothing
// waits for objects that will not come.
func (s *spaces) fails(_ context.Context, _ *toolscache.Reflector, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	s.doubt.noteFailure(time.Now(), apierrors.IsForbidden(err))
	if apierrors.IsForbidden(err) {
		s.decide()
	}
	s.log.Warn("cannot watch nodes, pods, PersistentVolumes and StorageClasses of the cluster: allow the operator to list and watch them, or leave --read-nodes out", "error", err)
}

// Start implements manager.Runnable: only the leader looks.
func (s *spaces) Start(ctx context.Context) error {
	if s.cache != nil {
		go func() {
			if err := s.cache.Start(ctx); err != nil {
				s.log.Warn("cannot read the cluster's nodes", "error", err)
			}
		}()
		late := time.AfterFunc(nodesPatience, s.decide)
		if s.follow(ctx) {
			late.Stop()
			s.decide()
		}
	}
	for _, kind := range []client.Object{&corev1.ResourceQuota{}, &corev1.PersistentVolumeClaim{}} {
		if informer, err := s.shared.GetInformer(ctx, kind); err == nil { // else ctx has ended, or one process runs the Site and there are none
			_, _ = informer.AddEventHandler(s.noted())
		}
	}
	for ticker := time.NewTicker(spaceEvery); ; {
		select {
		case <-ctx.Done():
			ticker.Stop()
			return nil
		case <-ticker.C:
			if s.changed.Swap(false) {
				s.wakeAll(ctx)
			}
		}
	}
}

// follow returns true once all nodes, and the pods on them, are known; false: they will not be, as ctx ended or a watch cannot be made.
func (s *spaces) follow(ctx context.Context) bool {
	var synced []toolscache.InformerSynced
	for _, kind := range followed() {
		informer, err := s.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(s.noted())
		}
		if err != nil {
			s.log.Warn("cannot read the cluster's nodes", "error", err)
			return false
		}
		synced = append(synced, informer.HasSynced)
	}
	is := toolscache.WaitForCacheSync(ctx.Done(), synced...)
	s.doubt.read() // a right that was given a moment ago may have been refused at first
	s.changed.Store(true)
	s.synced.Store(is)
	return is
}

func (s *spaces) noted() toolscache.ResourceEventHandler {
	note := func() { s.changed.Store(true) }
	return toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { note() }, UpdateFunc: func(any, any) { note() }, DeleteFunc: func(any) { note() }}
}

// wakeAll has all pools check the available space.
func (s *spaces) wakeAll(ctx context.Context) {
	var gateways v1alpha1.IngestGatewayList
	var servers v1alpha1.FeedServerList
	if err := errors.Join(s.client.List(ctx, &gateways, client.UnsafeDisableDeepCopy), s.client.List(ctx, &servers, client.UnsafeDisableDeepCopy)); err != nil {
		return // the manager's cache ends
	}
	if s.synced.Load() {
		s.mu.Lock()
		s.sum(ctx)
		s.mu.Unlock()
	}
	for i := range gateways.Items {
		s.wakers.gateways.wake(client.ObjectKeyFromObject(&gateways.Items[i]))
	}
	for i := range servers.Items {
		s.wakers.servers.wake(client.ObjectKeyFromObject(&servers.Items[i]))
	}
}

// ceiling returns how many pods of a pool the cluster can give; nil for a nil pool.
func (s *spaces) ceiling(ctx context.Context, pool *ceiling.Pool) (*autoscale.Count, error) {
	if pool == nil {
		return nil, nil
	}
	space, err := s.of(ctx, pool.Namespace)
	if err != nil {
		return nil, err
	}
	return new(space.Fit(pool, plan.MaxPods)), nil
}

// of returns the space of a namespace, whose pods are given.
func (s *spaces) of(ctx context.Context, namespace string) (*ceiling.Space, error) {
	var quotas corev1.ResourceQuotaList
	var claims corev1.PersistentVolumeClaimList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&quotas, &claims, &pods} {
		if err := s.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
	}
	space := &ceiling.Space{Quotas: quotas.Items, Claims: claims.Items, Pods: pods.Items, Unread: "the operator may not read nodes (operator.readNodes of the chart)"}
	select {
	case <-s.decided:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.cache == nil {
		return space, nil
	}
	if !s.synced.Load() || s.doubt.isUnread(time.Now()) {
		space.Unread = "the operator cannot read the cluster's nodes: its log says why"
		return space, nil
	}
	space.Nodes = s.known(ctx)
	return space, nil
}

// known returns the last sum of the nodes.
func (s *spaces) known(ctx context.Context) *ceiling.Nodes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil {
		s.sum(ctx)
	}
	return s.nodes
}

// sum sums up the pods on the nodes; the lock is held.
func (s *spaces) sum(ctx context.Context) {
	var nodes corev1.NodeList
	var pods corev1.PodList
	var volumes corev1.PersistentVolumeList
	var classes storagev1.StorageClassList
	for _, list := range []client.ObjectList{&nodes, &pods, &volumes, &classes} {
		if err := s.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			s.changed.Store(true) // the cache ends
			return
		}
	}
	s.nodes = ceiling.NewNodes(nodes.Items, pods.Items, classes.Items, volumes.Items)
}

// spaceOnly drops the fields that do not affect the space: most of a pod that belongs to no pool.
func spaceOnly(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Pod:
		return podSpace(o), nil
	case *corev1.Node:
		o.ManagedFields, o.Annotations = nil, nil
		o.Status = corev1.NodeStatus{Allocatable: o.Status.Allocatable, Conditions: o.Status.Conditions}
	case *corev1.PersistentVolume:
		o.ManagedFields = nil
		o.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{}
	case *storagev1.StorageClass:
		o.ManagedFields, o.Parameters = nil, nil
	}
	return o, nil
}

func podSpace(pod *corev1.Pod) *corev1.Pod {
	spec := &pod.Spec
	is := &corev1.Pod{TypeMeta: pod.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, Labels: pod.Labels, DeletionTimestamp: pod.DeletionTimestamp},
		Spec: corev1.PodSpec{NodeName: spec.NodeName, Priority: spec.Priority, SchedulingGates: spec.SchedulingGates, Overhead: spec.Overhead, Resources: spec.Resources,
			NodeSelector: spec.NodeSelector, Affinity: spec.Affinity, Tolerations: spec.Tolerations},
		Status: corev1.PodStatus{Phase: pod.Status.Phase}}
	resources := func(all []corev1.Container) (left []corev1.Container) {
		for i := range all {
			left = append(left, corev1.Container{Name: all[i].Name, Resources: all[i].Resources, RestartPolicy: all[i].RestartPolicy})
		}
		return left
	}
	is.Spec.Containers, is.Spec.InitContainers = resources(spec.Containers), resources(spec.InitContainers)
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		is.Status.ContainerStatuses = append(is.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Resources: c.Resources, AllocatedResources: c.AllocatedResources})
	}
	return is
}
