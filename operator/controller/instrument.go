// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/instrument"
	"github.com/substorm/substorm/operator/plan/workload"
)

const kindInstrument = "Instrument"

// instrumentReconciler keeps the status of Instruments. Their registry entries
// are the registryReconciler's.
type instrumentReconciler struct {
	client   client.Client
	links    *links
	wakers   *wakers
	statuses *statusWriter
	recorder recorder.EventRecorder
}

// Reconcile plans the status of one Instrument, and emits events for refusals.
func (r *instrumentReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	name := resource{kindInstrument, req.NamespacedName}
	inst := &v1alpha1.Instrument{}
	if err := r.client.Get(ctx, req.NamespacedName, inst); apierrors.IsNotFound(err) {
		r.statuses.forget(name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	site := types.NamespacedName{Namespace: inst.Namespace, Name: inst.Spec.SiteRef.Name}
	f := r.links.facts(site)
	if finding.Unreadable(inst) != "" { // objects that were made for it stay as they are
		f.settle(kindInstrument, inst.Name, true)
		if f.setState(inst.Name, instrumentState{flowing: instrument.UnreadableFlow(inst)}) {
			r.wakers.sites.wake(site)
		}
		return ctrl.Result{}, nil
	}
	restoreNewestStatus(r.statuses, name, inst, &inst.Status)
	verdict, entry, judged := f.verdict(inst)
	if !judged {
		return ctrl.Result{}, nil // the registry's controller has not come to it yet, and wakes this one
	}
	retell := r.tellRefusals(f, inst)
	view := instrument.View{Now: r.links.now(), Instrument: inst, Verdict: verdict, Entry: entry,
		Reports: f.reports.ofInstrument(inst.Name),
		Forward: f.reports.ofForward(inst.Name), Damage: f.reports.ofDamage(inst.Name),
		Clock: f.reports.ofClock(inst.Name), Content: f.reports.ofContent(inst.Name), Sender: f.reports.ofSender(inst.Name, r.links.now())}
	view.Gateways = f.reports.ofPool(view.PoolName())
	_, view.Bus, _, _ = f.snapshot()
	if err := r.readPool(ctx, &view); err != nil {
		return ctrl.Result{}, err
	}
	status, wait := instrument.Status(view)
	f.settle(kindInstrument, inst.Name, finding.Of(status.Conditions, v1alpha1.ConditionProgrammed).OK())
	if f.setState(inst.Name, instrumentState{flowing: finding.Of(status.Conditions, v1alpha1.ConditionDataFlowing)}) {
		r.wakers.sites.wake(site)
	}
	code, err := siteCode(ctx, r.client, site)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.statuses.submit(planned{
		resource: name, object: inst, site: site, code: code,
		was: &inst.Status, is: &status, wasConds: inst.Status.Conditions, isConds: status.Conditions,
		urgency: plan.InstrumentUrgency(&inst.Status, &status), passing: plan.InstrumentPasses(&inst.Status, &status),
	})
	return ctrl.Result{RequeueAfter: earlier(wait, retell)}, nil
}

// tellRefusals emits events for senders that gateways nearly took for an Instrument, and returns when to look again.
func (r *instrumentReconciler) tellRefusals(f *facts, inst *v1alpha1.Instrument) time.Duration {
	events, wait := f.reports.refusalsDue(inst.Name, r.links.now())
	for _, e := range events {
		r.recorder.Eventf(inst, nil, corev1.EventTypeWarning, string(e.Cause), "Refuse", "%s", e.Message)
	}
	return wait
}

// earlier returns the shorter of two waits; 0 means no wait.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// readPool reads the objects that addresses are made from.
func (r *instrumentReconciler) readPool(ctx context.Context, view *instrument.View) error {
	if !view.Verdict.Stands() || view.Verdict.Gateway == "" {
		return nil
	}
	pool := &v1alpha1.IngestGateway{}
	err := r.client.Get(ctx, types.NamespacedName{Namespace: view.Instrument.Namespace, Name: view.Verdict.Gateway}, pool)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	view.Pool = pool
	var pods corev1.PodList
	var services corev1.ServiceList
	ofPool := []client.ListOption{client.InNamespace(pool.Namespace), client.MatchingFields{instanceField: pool.Name},
		client.MatchingLabels(workload.PodLabels(pool.Name)), client.UnsafeDisableDeepCopy}
	if err := r.client.List(ctx, &pods, ofPool...); err != nil {
		return err
	}
	if err := r.client.List(ctx, &services, ofPool...); err != nil {
		return err
	}
	view.Pods, view.Services = pods.Items, services.Items
	return nil
}

// siteCode returns the code of a Site; empty if it does not exist.
func siteCode(ctx context.Context, c client.Client, key types.NamespacedName) (string, error) {
	site := &v1alpha1.Site{}
	if err := c.Get(ctx, key, site); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return site.Spec.Code, nil
}
