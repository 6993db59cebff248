// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// siteProgram is a program that runs for a Site, as the planner has it, and the findings about it.
type siteProgram struct {
	workload.SiteProgram
	// owner of its objects, and the Site that names the account's key.
	owner client.Object
	site  *v1alpha1.Site
	user  bus.JetStreamUser
	// objects plans the objects to apply; notOurs is the finding for one that has another owner.
	objects func(workload.SiteProgram) []workload.Object
	notOurs func(kind, name string) finding.Finding
	view    *plan.SiteProgramView
}

// applyArchivist brings the objects of a Site's archivist into their planned state, and reads their state.
func (r *siteReconciler) applyArchivist(ctx context.Context, view *plan.SiteView) error {
	p := &siteProgram{
		SiteProgram: workload.ArchivistOf(view.Site), owner: view.Site, site: view.Site, user: bus.ArchivistUser(view.Site), view: &view.Archivist,
		objects: func(s workload.SiteProgram) []workload.Object { return workload.Archivist{SiteProgram: s}.Objects() }, notOurs: plan.SiteObjectNotOurs,
	}
	p.Image, p.Pull, p.Secrets = r.image, r.pull, view.Secrets
	begins, failed := r.archivistBegins(ctx, view, p.Name())
	switch {
	case failed != nil:
	case !begins || !acceptedAlone(*view):
		failed = r.keepProgramCredentials(ctx, r.secrets, p, view.Now)
	default:
		view.Archivist.Failed, failed = r.applyProgram(ctx, r.secrets, p, view.Now)
	}
	return errors.Join(failed, r.readProgram(ctx, p))
}

// archivistBegins returns whether a Site may have an archivist. A new one waits until the markers were read and are the Site's own: it
// changes and expires all objects in the bucket under the code, no matter who put them there. An existing archivist of this Site keeps
// running, whatever the backends report; one that a deleted Site of the same code left does not count.
func (r *siteReconciler) archivistBegins(ctx context.Context, view *plan.SiteView, name string) (bool, error) {
	if b := view.Backends; b.ObjectStore != nil && b.ObjectStore.OK() && b.JetStream != nil && plan.SiteAccepted(*view).OK() {
		return true, nil
	}
	d, err := optional(ctx, r.client, types.NamespacedName{Namespace: view.Site.Namespace, Name: name}, &appsv1.Deployment{})
	return d != nil && metav1.IsControlledBy(d, view.Site), err
}

// acceptedAlone returns whether a Site is accepted, ignoring its backends.
func acceptedAlone(view plan.SiteView) bool {
	view.Backends = plan.Backends{}
	return plan.SiteAccepted(view).OK()
}

// keepProgramCredentials renews the credentials that a program has whose owner is not accepted.
func (r *applier) keepProgramCredentials(ctx context.Context, secrets *secretReader, p *siteProgram, now time.Time) (err error) {
	if p.site.Spec.JetStream.AccountKeySecretRef != nil {
		p.view.Credentials, err = r.keepCredentials(ctx, secrets, p.owner, workload.JetStreamSecret(p.Name()), p.user.Name, now)
	}
	return err
}

// readProgram reads a program's Deployment and pods.
func (r *applier) readProgram(ctx context.Context, p *siteProgram) error {
	namespace := p.owner.GetNamespace()
	d, err := optional(ctx, r.client, types.NamespacedName{Namespace: namespace, Name: p.Name()}, &appsv1.Deployment{})
	if err != nil {
		return err
	}
	if d != nil && metav1.IsControlledBy(d, p.owner) {
		p.view.Deployment = d
	}
	var pods corev1.PodList
	err = r.client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels(p.Selector()), client.UnsafeDisableDeepCopy)
	p.view.Pods = pods.Items
	return err
}

func (r *applier) applyProgram(ctx context.Context, secrets *secretReader, p *siteProgram, now time.Time) (*finding.Finding, error) {
	if p.site.Spec.JetStream.AccountKeySecretRef != nil {
		finding, err := r.applyProgramUser(ctx, secrets, p, now)
		if finding != nil || err != nil {
			return finding, err
		}
	}
	for _, o := range p.objects(p.SiteProgram) {
		finding, err := r.applyObject(ctx, p.owner, o, p.notOurs)
		if finding != nil || err != nil {
			return finding, err
		}
	}
	return nil, nil
}

// applyProgramUser keeps its credentials in a Secret, like those of a pool.
func (r *applier) applyProgramUser(ctx context.Context, secrets *secretReader, p *siteProgram, now time.Time) (*finding.Finding, error) {
	at := types.NamespacedName{Namespace: p.owner.GetNamespace(), Name: workload.JetStreamSecret(p.Name())}
	have, err := secrets.read(ctx, at.Namespace, []workload.SecretNeed{{Name: at.Name}})
	if err != nil {
		return nil, err
	}
	current := have[at.Name]
	if current != nil && !metav1.IsControlledBy(current, p.owner) {
		return new(p.notOurs("Secret", at.Name)), nil
	}
	p.view.Credentials = issued(current)
	ref := p.site.Spec.JetStream.AccountKeySecretRef.Name
	if p.Secrets[ref] == nil {
		if current != nil {
			p.Permissions = current.Annotations[workload.AnnotationPermissions]
		}
		return nil, nil // the status reports the missing Secret anyway
	}
	key, err := readAccountKey(p.Secrets[ref])
	if err != nil {
		return unreadable(ref, "spec.jetStream.accountKeySecretRef of Site "+p.site.Name, err), nil
	}
	p.Permissions = p.user.Hash(key.account, key.issuer)
	creds, is, err := key.credentials(p.user, current, p.owner.GetAnnotations()[v1alpha1.AnnotationRotateCredentials], now)
	if err != nil || creds == nil {
		return nil, err
	}
	defer secrets.forget(at)
	finding, err := r.applySecret(ctx, p.owner, current, p.CredentialsSecret(creds))
	if finding == nil && err == nil {
		p.view.Credentials = is
	}
	return finding, err
}
