// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// siteProgram is a program of a Site, as the planner has it, and what was found of it.
type siteProgram struct {
	plan.SiteProgram
	user plan.JetStreamUser
	// objects plans what is applied.
	objects func(plan.SiteProgram) []plan.Object
	view    *plan.SiteProgramView
}

// program returns a program of the Site, whose Permissions are not known yet.
func (r *siteReconciler) program(view *plan.SiteView, name, image string) plan.SiteProgram {
	return plan.SiteProgram{Site: view.Site, Program: name, Image: image, PullSecrets: r.pull, Secrets: view.Secrets}
}

// applyArchivist makes the objects of a Site's archivist what they should be, and reads what
// became of them.
func (r *siteReconciler) applyArchivist(ctx context.Context, view *plan.SiteView) error {
	objects := func(s plan.SiteProgram) []plan.Object { return plan.Archivist{SiteProgram: s}.Objects() }
	p := &siteProgram{r.program(view, plan.ArchivistProgram, r.images.Archivist), plan.ArchivistUser(view.Site), objects, &view.Archivist}
	var failed error
	if !acceptedAlone(*view) {
		failed = r.keepProgramCredentials(ctx, p, view)
	} else {
		view.Archivist.Failed, failed = r.applyProgram(ctx, view, p)
	}
	return errors.Join(failed, r.readProgram(ctx, view.Site, p))
}

// acceptedAlone says whether a Site is accepted whatever its backends say.
func acceptedAlone(view plan.SiteView) bool {
	view.Backends = plan.Backends{}
	return plan.SiteAccepted(view).OK()
}

// keepProgramCredentials notes the credentials that a program of a Site has that is not accepted.
func (r *siteReconciler) keepProgramCredentials(ctx context.Context, p *siteProgram, view *plan.SiteView) (err error) {
	if view.Site.Spec.JetStream.AccountKeySecretRef != nil {
		p.view.Credentials, err = r.keepCredentials(ctx, r.secrets, view.Site, plan.JetStreamSecret(p.Name()), p.user.Name, view.Now)
	}
	return err
}

// readProgram reads a program's Deployment and pods.
func (r *siteReconciler) readProgram(ctx context.Context, site *v1alpha1.Site, p *siteProgram) error {
	d, err := optional(ctx, r.client, types.NamespacedName{Namespace: site.Namespace, Name: p.Name()}, &appsv1.Deployment{})
	if err != nil {
		return err
	}
	if d != nil && metav1.IsControlledBy(d, site) {
		p.view.Deployment = d
	}
	var pods corev1.PodList
	err = r.client.List(ctx, &pods, client.InNamespace(site.Namespace), client.MatchingLabels(p.Selector()), client.UnsafeDisableDeepCopy)
	p.view.Pods = pods.Items
	return err
}

func (r *siteReconciler) applyProgram(ctx context.Context, view *plan.SiteView, p *siteProgram) (*plan.Finding, error) {
	if view.Site.Spec.JetStream.AccountKeySecretRef != nil {
		finding, err := r.applyProgramUser(ctx, view, p)
		if finding != nil || err != nil {
			return finding, err
		}
	}
	for _, o := range p.objects(p.SiteProgram) {
		finding, err := r.applyObject(ctx, view.Site, o, plan.SiteObjectNotOurs)
		if finding != nil || err != nil {
			return finding, err
		}
	}
	return nil, nil
}

// applyProgramUser keeps its credentials in a Secret, as those of a pool are.
func (r *siteReconciler) applyProgramUser(ctx context.Context, view *plan.SiteView, p *siteProgram) (*plan.Finding, error) {
	name := plan.JetStreamSecret(p.Name())
	have, err := r.secrets.read(ctx, view.Site.Namespace, []plan.SecretNeed{{Name: name}})
	if err != nil {
		return nil, err
	}
	current := have[name]
	if current != nil && !metav1.IsControlledBy(current, view.Site) {
		return new(plan.SiteObjectNotOurs("Secret", name)), nil
	}
	p.view.Credentials = issued(current)
	ref := view.Site.Spec.JetStream.AccountKeySecretRef.Name
	if view.Secrets[ref] == nil {
		if current != nil {
			p.Permissions = current.Annotations[plan.AnnotationPermissions]
		}
		return nil, nil // the status tells of the missing Secret anyway
	}
	key, err := readAccountKey(view.Secrets[ref])
	if err != nil {
		return unreadable(ref, "spec.jetStream.accountKeySecretRef", err), nil
	}
	p.Permissions = p.user.Hash(key.account, key.issuer)
	creds, is, err := key.credentials(p.user, current, view.Site.Annotations[v1alpha1.AnnotationRotateCredentials], view.Now)
	if err != nil || creds == nil {
		return nil, err
	}
	defer r.secrets.forget(types.NamespacedName{Namespace: view.Site.Namespace, Name: name})
	finding, err := r.applySecret(ctx, name, p.CredentialsSecret(creds))
	if finding == nil && err == nil {
		p.view.Credentials = is
	}
	return finding, err
}
