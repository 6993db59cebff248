// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/substorm/substorm/internal/natsaccounts"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
	"github.com/substorm/substorm/operator/surge/autoscale"
)

// siteField is the index of pools, FeedServers, Instruments and Feeds by the Site that they name, feedField the index of FeedConsumers by
// their Feed. tokensField finds, by hasTokens, the Instruments that name Secrets with tokens: a list of all Instruments of a large Site,
// every few seconds, is most of what an idle operator would do. secretsField is the index of all objects by the Secrets that they name.
const (
	siteField    = "spec.siteRef.name"
	feedField    = "spec.feedRef.name"
	tokensField  = "spec.listeners.tokenSecretKeyRef"
	hasTokens    = "yes"
	secretsField = "spec.*SecretRef"
)

// instanceField is the index of pods and Services by the resource that they are made for, which each of its Instruments' statuses reads.
const instanceField = "metadata.labels." + workload.LabelInstance

// Config of the controllers.
type Config struct {
	// Images are the images of pods, and Pull is how nodes get them.
	Images Images
	Pull   workload.Pulling
	Log    *slog.Logger
	// StatusRate bounds the writes of statuses per second, FiguresRate those of them that only update figures, and Workers is how many
	// resources of a kind are reconciled at once. 0: the default.
	StatusRate, FiguresRate float64
	Workers                 int
	// AuditEvery is how often all of a Site is judged again without an event; 0: the default.
	AuditEvery time.Duration
	// SecretRate bounds how many Secrets a second, beside those of Sites and pools, are checked for changes; 0: the default. WatchSecrets
	// has the operator watch the metadata of Secrets in Namespaces (none means all) instead, if it may.
	SecretRate   float64
	WatchSecrets bool
	Namespaces   []string
	// ReadNodes has the operator read the cluster's nodes, pods, PersistentVolumes and StorageClasses, where it may, so that it makes no pods
	// that find no node.
	ReadNodes bool
	// DeletionLimit is how long a Feed with deletionPolicy Delete, or its Site, waits for
	// streams to go when it is deleted; 0: plan.DeletionLimit.
	DeletionLimit time.Duration
	// Autoscale configures the operator's own loop for pools that do not; zero: autoscale.Defaults.
	Autoscale autoscale.Config
	// Metrics gets the operator's own; nil for none.
	Metrics prometheus.Registerer
	// ClusterID distinguishes clusters that share a bucket or a NATS account. Empty: the uid of the namespace kube-system, which needs the
	// right to get that namespace.
	ClusterID string
	// Link has a NATS server in this process link to a hub's, nil for no link, and returns the state of the link; nil if no server is in
	// this process.
	Link func(*natsaccounts.Link) natsaccounts.LinkState
	// Disk returns how much of its disk this process uses; nil if the disk has no budget.
	Disk func() plan.Disk
	// Manifests returns which of its files this process could not apply; nil if it has none.
	Manifests func() *plan.Manifests
	// Unchecked allows several managers in one process, as tests have.
	Unchecked bool
}

// Images are the images of the programs whose pods the operator makes.
type Images struct{ Gateway, FeedServer, Archivist, Mirror string }

// CacheObjects restricts the manager's cache to the operator's objects. With standalone it holds Sites, pools and FeedServers as they are
// without a cluster; nil for a cluster.
func CacheObjects(standalone *plan.Standalone) map[client.Object]cache.ByObject {
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{workload.LabelManagedBy: workload.FieldOwner})}
	objects := map[client.Object]cache.ByObject{
		&appsv1.StatefulSet{}:           ours,
		&appsv1.Deployment{}:            ours,
		&corev1.Service{}:               ours,
		&corev1.ServiceAccount{}:        ours,
		&corev1.Pod{}:                   ours,
		&policyv1.PodDisruptionBudget{}: ours,
		&batchv1.CronJob{}:              ours,
		&batchv1.Job{}:                  ours,
	}
	if standalone == nil {
		// A StatefulSet gives its claims the labels of its selector. Without a cluster there are no claims.
		objects[&corev1.PersistentVolumeClaim{}] = cache.ByObject{Label: labels.SelectorFromSet(labels.Set{workload.LabelName: workload.GatewayProgram})}
		return objects
	}
	apply := cache.ByObject{Transform: func(o any) (any, error) {
		o, err := cache.TransformStripManagedFields()(o)
		if object, is := o.(client.Object); is {
			standalone.Apply(object)
		}
		return o, err
	}}
	for _, kind := range []client.Object{&v1alpha1.Site{}, &v1alpha1.IngestGateway{}, &v1alpha1.FeedServer{}} {
		objects[kind] = apply
	}
	return objects
}

// Setup adds the controllers to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, cfg Config) error {
	cluster, err := cfg.ClusterID, error(nil)
	if cluster == "" {
		cluster, err = clusterID(ctx, mgr.GetAPIReader())
	}
	if err != nil {
		return err
	}
	wake := &wakers{}
	all := newLinks(wake, cfg.Log, time.Now)
	tell := &announcer{recorder: mgr.GetEventRecorder(workload.FieldOwner), links: all, log: cfg.Log,
		unpublished: prometheus.NewCounter(prometheus.CounterOpts{Name: "substorm_operator_condition_changes_unpublished_total",
			Help: "Changes of conditions and levels that no subject took, since JetStream was away."})}
	statuses := newStatusWriter(mgr.GetClient(), cmp.Or(cfg.StatusRate, defaultStatusRate), cmp.Or(cfg.FiguresRate, defaultFiguresRate), cfg.Log, time.Now, tell.announce)
	secrets := newSecretReader(mgr.GetAPIReader())
	touched := &touched{}
	poller := &secretPoller{client: mgr.GetClient(), reader: mgr.GetAPIReader(), secrets: secrets, wakers: wake, touched: touched,
		rate: rate.Limit(cmp.Or(cfg.SecretRate, defaultSecretRate)), log: cfg.Log}
	if cfg.WatchSecrets {
		if poller.watch, err = newSecretWatch(mgr, cfg.Namespaces, cfg.Log); err != nil {
			return err
		}
	}
	apply := newApplier(mgr.GetClient(), mgr.GetAPIReader(), time.Now)
	finalizers := finalizers{mgr.GetClient(), mgr.GetEventRecorder(workload.FieldOwner)}
	wake.registries.noted = touched.addAll
	differences := prometheus.NewCounter(prometheus.CounterOpts{Name: "substorm_registry_audit_differences_total",
		Help: "What an operator that judged all of a Site anew, without an event, found to be otherwise than it had written it: 0 unless there is a bug."})
	spaces, err := newSpaces(mgr, wake, cfg.ReadNodes, cfg.Log)
	if err != nil {
		return err
	}
	weathers := newWeathers(wake, cfg.Log, time.Now)
	scalers := newScalers(mgr.GetClient(), all, wake, mgr.GetEventRecorder(workload.FieldOwner), cmp.Or(cfg.Autoscale, autoscale.Defaults), cfg.Log, time.Now)
	s := &setup{mgr: mgr, wakers: wake, unchecked: cfg.Unchecked, workers: cmp.Or(cfg.Workers, defaultWorkers)}
	err = errors.Join(
		mgr.Add(all), mgr.Add(weathers), mgr.Add(spaces), mgr.Add(scalers), mgr.Add(statuses), mgr.Add(poller), s.indexes(ctx),
		s.registries(&registryReconciler{client: mgr.GetClient(), links: all, secrets: secrets, wakers: wake, log: cfg.Log,
			touched: touched, auditEvery: cmp.Or(cfg.AuditEvery, defaultAuditEvery), differences: differences}, touched),
		s.sites(&siteReconciler{apply, all, wake, secrets, statuses, finalizers, cfg.DeletionLimit, cluster,
			cfg.Images.Archivist, cfg.Pull, &upstream{link: cfg.Link}, cfg.Disk, cfg.Manifests, weathers}),
		s.gateways(&gatewayReconciler{apply, all, secrets, statuses, spaces, cfg.Images.Gateway, cfg.Pull, scalers}),
		s.servers(&serverReconciler{apply, all, secrets, statuses, spaces, cfg.Images.FeedServer, cfg.Pull, scalers}),
		s.mirrors(&mirrorReconciler{apply, all, secrets, statuses, cfg.Images.Mirror, cfg.Pull}),
		s.feeds(&feedReconciler{mgr.GetClient(), all, statuses, finalizers, cfg.DeletionLimit}),
		s.consumers(&consumerReconciler{apply, all, wake, secrets, statuses}),
		s.instruments(&instrumentReconciler{mgr.GetClient(), all, wake, statuses, mgr.GetEventRecorder(workload.FieldOwner)}, all),
	)
	if err != nil {
		return fmt.Errorf("set up the controllers: %w", err)
	}
	if cfg.Metrics != nil {
		for _, metrics := range []prometheus.Collector{newMetrics(all, statuses), &poolMetrics{mgr.GetClient(), all}, tell.unpublished, differences, weathers, scalers} {
			err = errors.Join(err, cfg.Metrics.Register(metrics))
		}
	}
	return err
}

// clusterID distinguishes clusters that share a bucket or an account.
func clusterID(ctx context.Context, reader client.Reader) (string, error) {
	system := &corev1.Namespace{}
	if err := reader.Get(ctx, types.NamespacedName{Name: "kube-system"}, system); err != nil {
		return "", fmt.Errorf("read the namespace kube-system, whose uid names the cluster: %w: name the cluster with --cluster-id where it may not be read", err)
	}
	return string(system.UID), nil
}

type setup struct {
	mgr       ctrl.Manager
	wakers    *wakers
	unchecked bool
	workers   int
}

func (s *setup) indexes(ctx context.Context) error {
	index := s.mgr.GetFieldIndexer()
	return errors.Join(
		index.IndexField(ctx, &v1alpha1.Instrument{}, siteField, func(o client.Object) []string {
			return []string{o.(*v1alpha1.Instrument).Spec.SiteRef.Name}
		}),
		index.IndexField(ctx, &v1alpha1.Instrument{}, tokensField, func(o client.Object) []string {
			if len(accept.TokenSecrets(o.(*v1alpha1.Instrument))) == 0 {
				return nil
			}
			return []string{hasTokens}
		}),
		index.IndexField(ctx, &v1alpha1.IngestGateway{}, siteField, func(o client.Object) []string {
			return []string{o.(*v1alpha1.IngestGateway).Spec.SiteRef.Name}
		}),
		index.IndexField(ctx, &v1alpha1.FeedServer{}, siteField, func(o client.Object) []string {
			return []string{o.(*v1alpha1.FeedServer).Spec.SiteRef.Name}
		}),
		index.IndexField(ctx, &v1alpha1.Feed{}, siteField, func(o client.Object) []string {
			return []string{o.(*v1alpha1.Feed).Spec.SiteRef.Name}
		}),
		index.IndexField(ctx, &v1alpha1.MirrorPartner{}, siteField, func(o client.Object) []string {
			return []string{o.(*v1alpha1.MirrorPartner).Spec.SiteRef.Name}
		}),
		index.IndexField(ctx, &v1alpha1.FeedConsumer{}, feedField, func(o client.Object) []string {
			return []string{o.(*v1alpha1.FeedConsumer).Spec.FeedRef.Name}
		}),
		s.indexSecrets(ctx),
		index.IndexField(ctx, &corev1.Pod{}, instanceField, instanceOf),
		index.IndexField(ctx, &corev1.Service{}, instanceField, instanceOf),
	)
}

// indexSecrets finds the objects that refer to a Secret.
func (s *setup) indexSecrets(ctx context.Context) (err error) {
	for _, o := range []client.Object{&v1alpha1.Site{}, &v1alpha1.IngestGateway{}, &v1alpha1.FeedServer{}, &v1alpha1.MirrorPartner{}, &v1alpha1.Instrument{}} {
		err = errors.Join(err, s.mgr.GetFieldIndexer().IndexField(ctx, o, secretsField, func(o client.Object) (names []string) {
			for _, ref := range accept.SecretReferences(o) {
				names = append(names, ref.Secret)
			}
			return names
		}))
	}
	return err
}

func instanceOf(o client.Object) []string { return []string{o.GetLabels()[workload.LabelInstance]} }

const defaultAuditEvery = 10 * time.Minute

// defaultWorkers: a reconciliation reads the cache and memory and seldom waits.
const defaultWorkers = 4

func (s *setup) options() controller.Options {
	return controller.Options{MaxConcurrentReconciles: s.workers, SkipNameValidation: &s.unchecked}
}

// untilStopped is r, except that requests which it could not finish because the operator stops are no errors.
func untilStopped(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, request)
		if errors.Is(ctx.Err(), context.Canceled) {
			err = nil
		}
		return result, err
	})
}

// specChanges: an object was created, deleted or its declaration changed; status changes are our own.
var specChanges = builder.WithPredicates(specChanged)

var specChanged = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, madeAnew)

// madeAnew: an object was deleted and recreated while no watch was open; both may have the same generation.
var madeAnew = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() }}

func (s *setup) registries(r reconcile.Reconciler, t *touched) error {
	all := func(sites func(context.Context, client.Object) []reconcile.Request) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(t.addAllOf(sites))
	}
	return ctrl.NewControllerManagedBy(s.mgr).Named("registry").WithOptions(s.options()).
		Watches(&v1alpha1.Instrument{}, handler.EnqueueRequestsFromMapFunc(t.byInstrument), builder.WithPredicates(
			predicate.Or(specChanged, predicate.LabelChangedPredicate{}))).
		Watches(&v1alpha1.IngestGateway{}, all(siteOf), specChanges).
		Watches(&v1alpha1.FeedServer{}, all(siteOf), specChanges).
		Watches(&v1alpha1.Feed{}, all(siteOf), specChanges).
		Watches(&v1alpha1.FeedConsumer{}, all(s.siteOfConsumer), specChanges).
		Watches(&v1alpha1.MirrorPartner{}, all(s.sitesOfMirror), specChanges).
		Watches(&v1alpha1.Site{}, all(s.sitesOfCode), specChanges).
		WatchesRawSource(source.Func(s.wakers.registries.start)).
		Complete(untilStopped(r))
}

func (s *setup) sites(r reconcile.Reconciler) error {
	return ctrl.NewControllerManagedBy(s.mgr).Named("site").WithOptions(s.options()).
		Watches(&v1alpha1.Site{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.Site{}, handler.EnqueueRequestsFromMapFunc(s.sitesOfCode), specChanges).
		Watches(&v1alpha1.Feed{}, handler.EnqueueRequestsFromMapFunc(siteOf), specChanges).          // its finalizer follows theirs
		Watches(&v1alpha1.IngestGateway{}, handler.EnqueueRequestsFromMapFunc(siteOf), specChanges). // floors may name it
		Watches(&v1alpha1.FeedServer{}, handler.EnqueueRequestsFromMapFunc(siteOf), builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, readinessChanges))).
		Watches(&appsv1.Deployment{}, s.ownerOf(&v1alpha1.Site{})).
		Watches(&corev1.ServiceAccount{}, s.ownerOf(&v1alpha1.Site{})).
		Watches(&policyv1.PodDisruptionBudget{}, s.ownerOf(&v1alpha1.Site{})).
		WatchesRawSource(source.Func(s.wakers.sites.start)).
		Complete(untilStopped(r))
}

func (s *setup) gateways(r *gatewayReconciler) error {
	waiting := handler.EnqueueRequestsFromMapFunc(r.waitForTurn)
	return ctrl.NewControllerManagedBy(s.mgr).Named("ingestgateway").WithOptions(s.options()).
		Watches(&v1alpha1.IngestGateway{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.IngestGateway{}, handler.EnqueueRequestsFromMapFunc(s.everyGateway), specChanges).
		Watches(&v1alpha1.Site{}, handler.EnqueueRequestsFromMapFunc(s.gatewaysOfSite), builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, acceptanceChanges, floorChanges))).
		Watches(&v1alpha1.IngestGateway{}, waiting, standstillChanges).
		Watches(&appsv1.StatefulSet{}, s.owner()).
		Watches(&appsv1.StatefulSet{}, waiting, turnChanges).
		Watches(&corev1.Service{}, s.owner()).
		Watches(&corev1.ServiceAccount{}, s.owner()).
		Watches(&policyv1.PodDisruptionBudget{}, s.owner()).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(poolOf)).
		WatchesRawSource(source.Func(s.wakers.gateways.start)).
		Complete(untilStopped(r))
}

func (s *setup) servers(r reconcile.Reconciler) error {
	owner := s.ownerOf(&v1alpha1.FeedServer{})
	return ctrl.NewControllerManagedBy(s.mgr).Named("feedserver").WithOptions(s.options()).
		Watches(&v1alpha1.FeedServer{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.FeedServer{}, handler.EnqueueRequestsFromMapFunc(s.everyServerOfSite), specChanges).
		Watches(&v1alpha1.Site{}, handler.EnqueueRequestsFromMapFunc(s.everyServer), builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, acceptanceChanges, floorChanges))).
		Watches(&appsv1.Deployment{}, owner).
		Watches(&corev1.Service{}, owner).
		Watches(&corev1.ServiceAccount{}, owner).
		Watches(&policyv1.PodDisruptionBudget{}, owner).
		WatchesRawSource(source.Func(s.wakers.servers.start)).
		Complete(untilStopped(r))
}

func (s *setup) mirrors(r reconcile.Reconciler) error {
	owner := s.ownerOf(&v1alpha1.MirrorPartner{})
	return ctrl.NewControllerManagedBy(s.mgr).Named("mirrorpartner").WithOptions(s.options()).
		Watches(&v1alpha1.MirrorPartner{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.Site{}, handler.EnqueueRequestsFromMapFunc(s.everyMirror), builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, acceptanceChanges))).
		Watches(&appsv1.Deployment{}, owner).
		Watches(&batchv1.CronJob{}, owner).
		Watches(&corev1.ServiceAccount{}, owner).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(mirrorOf)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(mirrorOf)).
		WatchesRawSource(source.Func(s.wakers.mirrors.start)).
		Complete(untilStopped(r))
}

func (s *setup) instruments(r reconcile.Reconciler, all *links) error {
	return ctrl.NewControllerManagedBy(s.mgr).Named("instrument").WithOptions(s.options()).
		Watches(&v1alpha1.Instrument{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(all.receivedByPoolOf), addressChanges).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(all.receivedByPoolOf), addressChanges).
		WatchesRawSource(source.Func(s.wakers.instruments.start)).
		Complete(untilStopped(r))
}

// addressChanges: senders reach a pool elsewhere than before.
var addressChanges = builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	switch is := e.ObjectNew.(type) {
	case *corev1.Pod:
		was := e.ObjectOld.(*corev1.Pod)
		return workload.PodReady(was) != workload.PodReady(is) || was.Status.HostIP != is.Status.HostIP
	case *corev1.Service:
		return !equality.Semantic.DeepEqual(e.ObjectOld.(*corev1.Service).Status.LoadBalancer, is.Status.LoadBalancer)
	}
	return true
}})

// acceptanceChanges: a Site was accepted, or no longer is.
var acceptanceChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*v1alpha1.Site), e.ObjectNew.(*v1alpha1.Site)
	changed := plan.Changed(was.Status.Conditions, is.Status.Conditions)
	return slices.ContainsFunc(changed, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionAccepted })
}}

// floorChanges: space weather asks for another number of pods.
var floorChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*v1alpha1.Site), e.ObjectNew.(*v1alpha1.Site)
	return !equality.Semantic.DeepEqual(plan.SurgeFloors(was), plan.SurgeFloors(is))
}}

// readinessChanges: a FeedServer's Ready condition changed, or is of another generation.
var readinessChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*v1alpha1.FeedServer), e.ObjectNew.(*v1alpha1.FeedServer)
	return was.Status.ObservedGeneration != is.Status.ObservedGeneration ||
		finding.Of(was.Status.Conditions, v1alpha1.ConditionReady) != finding.Of(is.Status.Conditions, v1alpha1.ConditionReady)
}}

func (s *setup) owner() handler.EventHandler { return s.ownerOf(&v1alpha1.IngestGateway{}) }

func (s *setup) ownerOf(kind client.Object) handler.EventHandler {
	return handler.EnqueueRequestForOwner(s.mgr.GetScheme(), s.mgr.GetRESTMapper(), kind, handler.OnlyControllerOwner())
}

func (s *setup) feeds(r reconcile.Reconciler) error {
	return ctrl.NewControllerManagedBy(s.mgr).Named("feed").WithOptions(s.options()).
		Watches(&v1alpha1.Feed{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.FeedConsumer{}, handler.EnqueueRequestsFromMapFunc(feedOf), specChanges).
		WatchesRawSource(source.Func(s.wakers.feeds.start)).
		Complete(untilStopped(r))
}

func (s *setup) consumers(r reconcile.Reconciler) error {
	return ctrl.NewControllerManagedBy(s.mgr).Named("feedconsumer").WithOptions(s.options()).
		Watches(&v1alpha1.FeedConsumer{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.Feed{}, handler.EnqueueRequestsFromMapFunc(s.consumersOf), specChanges).
		Watches(&v1alpha1.Site{}, handler.EnqueueRequestsFromMapFunc(s.everyConsumer), specChanges).
		Watches(&v1alpha1.FeedServer{}, handler.EnqueueRequestsFromMapFunc(s.everyConsumer), specChanges).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(s.everyConsumerOfServer)).
		WatchesRawSource(source.Func(s.wakers.consumers.start)).
		Complete(untilStopped(r))
}
