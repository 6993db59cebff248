// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

const kindMirrorPartner = "MirrorPartner"

// mirrorReconciler makes the objects of MirrorPartners and keeps their status. Their registry entries are the registryReconciler's.
type mirrorReconciler struct {
	*applier
	links    *links
	secrets  *secretReader
	statuses *statusWriter
	image    string
	pull     workload.Pulling
}

// Reconcile applies a MirrorPartner's objects and plans its status.
func (r *mirrorReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	name := resource{kindMirrorPartner, req.NamespacedName}
	mirror := &v1alpha1.MirrorPartner{}
	if err := r.client.Get(ctx, req.NamespacedName, mirror); apierrors.IsNotFound(err) {
		r.statuses.forget(name)
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	user := secretOfUser{workload.JetStreamSecret(workload.MirrorName(mirror.Name)), bus.MirrorUserName(mirror.Namespace, mirror.Name)}
	if finding.Unreadable(mirror) != "" { // objects that were made for it stay as they are
		return r.keepUnreadable(ctx, r.secrets, r.statuses, name, mirror, r.links.now(), user)
	}
	restoreNewestStatus(r.statuses, name, mirror, &mirror.Status)
	if err := r.halt(ctx, mirror); err != nil {
		return ctrl.Result{}, err
	}
	view, judged, err := r.read(ctx, mirror)
	if err != nil {
		return ctrl.Result{}, err
	}
	if view.Site != nil && finding.Unreadable(view.Site) != "" {
		return r.keepUnreadable(ctx, r.secrets, r.statuses, name, mirror, view.Now, user)
	}
	if !judged {
		return ctrl.Result{}, nil // the registry's controller has not come to it yet, and wakes this one
	}
	failed := r.applyObjects(ctx, &view)
	if err := r.readObjects(ctx, &view); err != nil {
		return ctrl.Result{}, errors.Join(failed, err)
	}
	status, wait := plan.MirrorStatus(view)
	r.links.facts(types.NamespacedName{Namespace: mirror.Namespace, Name: mirror.Spec.SiteRef.Name}).setMirror(mirror.Name, status)
	p := planned{
		resource: name, object: mirror, site: types.NamespacedName{Namespace: mirror.Namespace, Name: mirror.Spec.SiteRef.Name},
		was: &mirror.Status, is: &status, wasConds: mirror.Status.Conditions, isConds: status.Conditions,
		urgency: plan.MirrorUrgency(&mirror.Status, &status), expiresAt: expiry(view.Credentials),
	}
	if view.Site != nil {
		p.code = view.Site.Spec.Code
	}
	r.statuses.submit(p)
	if failed != nil {
		return ctrl.Result{}, failed
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// read reads everything except the state of the MirrorPartner's own objects. It is not judged if the registry's controller has not reached
// this generation.
func (r *mirrorReconciler) read(ctx context.Context, mirror *v1alpha1.MirrorPartner) (view plan.MirrorView, judged bool, err error) {
	key := types.NamespacedName{Namespace: mirror.Namespace, Name: mirror.Spec.SiteRef.Name}
	view = plan.MirrorView{Now: r.links.now(), Mirror: mirror}
	if view.Site, err = optional(ctx, r.client, key, &v1alpha1.Site{}); err != nil {
		return view, false, err
	}
	f := r.links.facts(key)
	judged = f.readMirror(&view)
	view.Reports = f.reports.ofMirror(mirror.Name)
	if view.Site != nil && finding.Unreadable(view.Site) == "" {
		view.Secrets, err = r.secrets.read(ctx, mirror.Namespace, workload.MirrorSecrets(view.Site, mirror))
	}
	return view, judged, err
}

// applyObjects brings the MirrorPartner's objects into their planned state. Without its Site there are none. While it is not accepted they stay as
// they are.
func (r *mirrorReconciler) applyObjects(ctx context.Context, view *plan.MirrorView) error {
	mirror := view.Mirror
	if view.Site == nil {
		return r.remove(ctx, mirror, workload.MirrorObjects(mirror.Name))
	}
	program := &siteProgram{SiteProgram: workload.MirrorOf(view.Site, mirror), owner: mirror, site: view.Site, view: &view.SiteProgramView,
		user: bus.MirrorUser(view.Site, mirror), notOurs: plan.MirrorObjectNotOurs}
	program.Image, program.Pull, program.Secrets = r.image, r.pull, view.Secrets
	if !view.Verdict.OK() {
		return r.keepProgramCredentials(ctx, r.secrets, program, view.Now)
	}
	program.objects = func(s workload.SiteProgram) []workload.Object {
		return workload.Mirror{SiteProgram: s, Partner: mirror}.Objects()
	}
	if err := r.remove(ctx, mirror, workload.MirrorLeftovers(view.Site, mirror)); err != nil {
		return err
	}
	var err error
	view.Failed, err = r.applyProgram(ctx, r.secrets, program, view.Now)
	return err
}

// halt stops the objects that start runs of a suspended MirrorPartner, before anything is judged.
func (r *mirrorReconciler) halt(ctx context.Context, mirror *v1alpha1.MirrorPartner) error {
	for _, o := range workload.MirrorHalts(mirror) {
		if err := r.amend(ctx, mirror, o); err != nil {
			return err
		}
	}
	return nil
}

// readObjects reads the state of the MirrorPartner's objects, and of the Jobs of its runs.
func (r *mirrorReconciler) readObjects(ctx context.Context, view *plan.MirrorView) error {
	mirror := view.Mirror
	program := &siteProgram{SiteProgram: workload.MirrorOf(view.Site, mirror), owner: mirror, view: &view.SiteProgramView}
	if err := r.readProgram(ctx, program); err != nil {
		return err
	}
	cron, err := optional(ctx, r.client, types.NamespacedName{Namespace: mirror.Namespace, Name: workload.MirrorName(mirror.Name)}, &batchv1.CronJob{})
	if err != nil {
		return err
	}
	if cron != nil && metav1.IsControlledBy(cron, mirror) {
		view.CronJob = cron
	}
	var jobs batchv1.JobList
	err = r.client.List(ctx, &jobs, client.InNamespace(mirror.Namespace), client.MatchingLabels(program.Selector()), client.UnsafeDisableDeepCopy)
	view.Jobs = jobs.Items
	return err
}

// mirrorsOfSite reads the MirrorPartners that name a Site, except those that are being deleted. They must not be changed: they are the
// cache's own.
func mirrorsOfSite(ctx context.Context, c client.Client, site types.NamespacedName) (all []v1alpha1.MirrorPartner, err error) {
	var mirrors v1alpha1.MirrorPartnerList
	err = c.List(ctx, &mirrors, client.InNamespace(site.Namespace), client.MatchingFields{siteField: site.Name}, client.UnsafeDisableDeepCopy)
	for i := range mirrors.Items {
		if mirrors.Items[i].DeletionTimestamp == nil {
			all = append(all, mirrors.Items[i])
		}
	}
	return all, err
}

// pushesOfOthers reads the MirrorPartners that push for other Sites of a Site's namespace, except those that are being deleted. They must
// not be changed: they are the cache's own.
func pushesOfOthers(ctx context.Context, c client.Client, site types.NamespacedName) (all []v1alpha1.MirrorPartner, err error) {
	var mirrors v1alpha1.MirrorPartnerList
	err = c.List(ctx, &mirrors, client.InNamespace(site.Namespace), client.UnsafeDisableDeepCopy)
	for i := range mirrors.Items {
		if m := &mirrors.Items[i]; m.Spec.SiteRef.Name != site.Name && m.Spec.Direction == v1alpha1.MirrorPush && m.DeletionTimestamp == nil {
			all = append(all, *m)
		}
	}
	return all, err
}

func mirrorNames(mirrors []v1alpha1.MirrorPartner) (names []string) {
	for i := range mirrors {
		names = append(names, mirrors[i].Name)
	}
	return names
}
