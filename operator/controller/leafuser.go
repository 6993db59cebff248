// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// applyLeafUsers keeps the credentials of a Site's leaves in Secrets, like those of a pool. If the key of the account of leaves is not
// available, there are none.
func (r *siteReconciler) applyLeafUsers(ctx context.Context, view *plan.SiteView) error {
	alone := *view
	alone.Backends = plan.Backends{}
	if len(view.Site.Spec.Leaves) == 0 || view.Site.Spec.JetStream.LeafAccountKeySecretRef == nil || !plan.SiteAccepted(alone).OK() {
		return nil
	}
	key, problem := leafAccountKey(view.Site, view.Secrets)
	if problem != nil {
		view.LeafFailed = problem
		return nil
	}
	for _, leaf := range view.Site.Spec.Leaves {
		finding, err := r.applyLeafUser(ctx, view.Site, leaf, key)
		if finding != nil {
			view.LeafFailed = finding
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *siteReconciler) applyLeafUser(ctx context.Context, site *v1alpha1.Site, leaf v1alpha1.Leaf, key accountKey) (*finding.Finding, error) {
	name := bus.LeafSecretName(site, leaf)
	have, err := r.secrets.read(ctx, site.Namespace, []workload.SecretNeed{{Name: name}})
	if err != nil {
		return nil, err
	}
	current := have[name]
	if current != nil && !metav1.IsControlledBy(current, site) {
		return new(plan.SiteObjectNotOurs("Secret", name)), nil
	}
	user := bus.LeafUser(site, leaf)
	creds, is, err := key.credentials(user, current, "", r.links.now())
	if err != nil || creds == nil {
		return nil, err
	}
	defer r.secrets.forget(types.NamespacedName{Namespace: site.Namespace, Name: name})
	return r.applySecret(ctx, site, current, bus.LeafSecret(site, leaf, creds, is.Permissions))
}
