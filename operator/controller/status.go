// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/workload"
)

const (
	// defaultStatusRate bounds the writes of statuses per second, all kinds together: the API server serves people too. defaultFiguresRate
	// bounds those of them that only update figures.
	defaultStatusRate  = 100
	defaultFiguresRate = 2
	// detailAge is how old a status must be before details alone change it, and figuresAge
	// before figures do.
	detailAge  = time.Minute
	figuresAge = 10 * time.Minute
	// passesWithin is how long a state that should end by itself must last before a status shows it: gateways report each interval which
	// registry they run.
	passesWithin = wire.GatewayReportInterval + time.Second
	// rewriteAfter is how long a write that failed waits.
	rewriteAfter = time.Second
	// statusWriters is how many writes are under way at once.
	statusWriters = 4
)

// resource names one of our resources.
type resource struct {
	kind string
	types.NamespacedName
}

// planned is a status that a controller wants.
type planned struct {
	resource
	// object as the controller saw it, for events.
	object client.Object
	// site whose health subject reports changed conditions, and its code.
	site types.NamespacedName
	code string

	was, is           any
	wasConds, isConds []metav1.Condition
	// level of a Site, belonging to is; nil: it declares none.
	level   *wire.SurgeLevel
	urgency plan.Urgency
	// passing: it reports a state that should end by itself within moments.
	passing bool
	// expiresAt is when the credentials expire that were issued for the resource; zero
	// for none.
	expiresAt time.Time
}

// trimForQueue returns the part that is kept until the status is written, which may take long for figures: for ten thousand objects and their
// former statuses, more is not needed.
func (p planned) trimForQueue() planned {
	p.object = &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: p.kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.object.GetUID(), ResourceVersion: p.object.GetResourceVersion()},
	}
	if _, ofSite := p.was.(*v1alpha1.SiteStatus); !ofSite { // events report its streams
		p.was = nil
	}
	if len(plan.Changed(p.wasConds, p.isConds)) == 0 {
		p.wasConds = p.isConds
	}
	return p
}

// statusWriter is the one writer of statuses: within one budget, the most
// urgent first, and of each resource only the newest.
type statusWriter struct {
	client  client.Client
	limiter *rate.Limiter
	// figuresPace is the least time between two writes of figures alone.
	figuresPace time.Duration
	now         func() time.Time
	log         *slog.Logger
	// announce is called after a status was written.
	announce func(planned)

	sign  chan struct{}
	mu    sync.Mutex
	queue statusQueue
	// writing are resources whose status is being written.
	writing map[resource]bool
	// figuresFrom is when figures alone may be written again.
	figuresFrom time.Time
	last        map[resource]lastStatus
	// expiries are when issued credentials expire.
	expiries map[resource]time.Time
}

// lastStatus is the status that was last written, until the cache shows it.
type lastStatus struct {
	uid     types.UID
	version string
	// status is nil once the cache showed it.
	status any
	at     time.Time
}

// newStatusWriter returns a writer with a budget of writes per second, and another for
// those of figures alone.
func newStatusWriter(c client.Client, perSecond, figuresPerSecond float64, log *slog.Logger, now func() time.Time, announce func(planned)) *statusWriter {
	return &statusWriter{
		client: c, log: log, now: now, announce: announce,
		limiter:     rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond))),
		figuresPace: time.Duration(float64(time.Second) / figuresPerSecond),
		sign:        make(chan struct{}, 1),
		queue:       statusQueue{waiting: map[resource]*pendingStatus{}}, writing: map[resource]bool{},
		last: map[resource]lastStatus{}, expiries: map[resource]time.Time{},
	}
}

// restoreNewestStatus puts the status that was last written in the place of an older one
// that the cache still shows.
func restoreNewestStatus[S any](w *statusWriter, r resource, obj client.Object, status *S) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.last[r]
	if !known || last.uid != obj.GetUID() || last.status == nil {
		return
	}
	order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), last.version)
	switch {
	case err != nil:
	case order < 0:
		*status = *(last.status.(*S))
	default:
		last.status = nil
		w.last[r] = last
	}
}

// submit requests a status. If it equals the current one, the earlier request is cancelled.
func (w *statusWriter) submit(p planned) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setExpiry(p.resource, p.expiresAt)
	if equality.Semantic.DeepEqual(p.was, p.is) {
		w.queue.remove(p.resource)
		return
	}
	next := &pendingStatus{planned: p.trimForQueue(), since: w.now()}
	if was := w.queue.waiting[p.resource]; was != nil {
		next.retryAt = was.retryAt
		if was.urgency <= p.urgency { // else it has waited for something else
			next.since = was.since
		}
	}
	w.enqueue(next)
}

// enqueue has a status wait for its turn. The caller holds the lock.
func (w *statusWriter) enqueue(p *pendingStatus) {
	p.due = w.due(p)
	w.queue.put(p, w.writing[p.resource])
	w.ring()
}

// setExpiry notes when the credentials of a resource expire; zero for none. The caller
// holds the lock.
func (w *statusWriter) setExpiry(r resource, at time.Time) {
	if at.IsZero() {
		delete(w.expiries, r)
		return
	}
	w.expiries[r] = at
}

// noteExpiry notes when the credentials expire of a resource that cannot be read, whose status
// stays as it is, and returns when to look at them again.
func (w *statusWriter) noteExpiry(r resource, c *bus.Credentials, now time.Time) ctrl.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setExpiry(r, expiry(c))
	return ctrl.Result{RequeueAfter: c.RenewsIn(now)}
}

// due is when a status may be written: details and figures wait until the last one is old enough, and states that should pass by themselves
// wait until they last. The caller holds the lock.
func (w *statusWriter) due(p *pendingStatus) time.Time {
	due := time.Time{}
	last, written := w.last[p.resource]
	switch {
	case p.urgency == plan.UrgencyDetail && written:
		due = last.at.Add(detailAge)
	case p.urgency == plan.UrgencyFigures && written:
		due = last.at.Add(figuresAge)
	case p.passing:
		due = p.since.Add(passesWithin)
	}
	if p.retryAt.After(due) {
		return p.retryAt
	}
	return due
}

// forget drops the state of a resource that is gone.
func (w *statusWriter) forget(r resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.remove(r)
	delete(w.last, r)
	delete(w.expiries, r)
}

// credentialExpiries are when issued credentials expire, by resource.
func (w *statusWriter) credentialExpiries() map[resource]time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.expiries)
}

func (w *statusWriter) ring() {
	select {
	case w.sign <- struct{}{}:
	default:
	}
}

// Start implements manager.Runnable.
func (w *statusWriter) Start(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(statusWriters)
	defer func() { _ = group.Wait() }()
	for {
		p, wait := w.next()
		if p == nil {
			if !w.idle(ctx, wait) {
				return nil
			}
			continue
		}
		group.Go(func() error {
			w.write(ctx, *p)
			return nil
		})
		if w.limiter.Wait(ctx) != nil {
			return nil
		}
	}
}

// idle waits for a sign or for a time, and returns false when ctx ended.
func (w *statusWriter) idle(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-w.sign:
	case <-timer.C:
	}
	return true
}

// next takes the most urgent status that may be written now, the one that has been due
// for longest first; if there is none, it says when to look again.
func (w *statusWriter) next() (*pendingStatus, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, wait := w.now(), time.Hour
	for u := plan.UrgencySpec; u <= plan.UrgencyFigures; u++ {
		p := w.queue.first(u)
		if p == nil {
			continue
		}
		due := p.due
		if u == plan.UrgencyFigures && w.figuresFrom.After(due) {
			due = w.figuresFrom
		}
		if hold := due.Sub(now); hold > 0 {
			wait = min(wait, hold)
			continue
		}
		if u == plan.UrgencyFigures {
			w.figuresFrom = now.Add(w.figuresPace)
		}
		w.queue.remove(p.resource)
		w.writing[p.resource] = true
		return p, 0
	}
	return nil, wait
}

func (w *statusWriter) write(ctx context.Context, p pendingStatus) {
	version, err := w.apply(ctx, p.planned)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		w.mu.Lock()
		w.last[p.resource] = lastStatus{p.object.GetUID(), version, p.is, w.now()}
		w.mu.Unlock()
		w.announce(p.planned)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// The resource is gone, or another one has its name: that one gets a
		// status of its own.
		w.forget(p.resource)
	default:
		w.log.Warn("a status could not be written", "kind", p.kind, "name", p.NamespacedName.String(), "error", err)
		w.requeue(p)
	}
	w.written(p.resource)
}

// written releases a status that was requested meanwhile.
func (w *statusWriter) written(r resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.writing, r)
	w.queue.release(r)
	w.ring()
}

// requeue puts back a failed status, unless a newer one waits.
func (w *statusWriter) requeue(p pendingStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue.waiting[p.resource] == nil {
		p.retryAt = w.now().Add(rewriteAfter)
		w.enqueue(&p)
	}
}

// apply writes the whole status, server-side: fields that it no longer holds are removed. The uid keeps it from another resource of the
// same name.
func (w *statusWriter) apply(ctx context.Context, p planned) (version string, err error) {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.is)
	if err != nil {
		return "", fmt.Errorf("encode the status of %s %s: %w", p.kind, p.NamespacedName, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": p.Name, "namespace": p.Namespace, "uid": string(p.object.GetUID())},
		"status":   status,
	}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(p.kind))
	err = w.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(workload.FieldOwner), client.ForceOwnership)
	return u.GetResourceVersion(), err
}
