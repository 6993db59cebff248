// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/workload"
)

// keepCredentials renews the credentials that were issued for a resource that is not accepted now, or that cannot be read: its programs
// run, and an invalid edit must not stop them when the credentials expire. They are signed with the permissions that they have, by the key
// that signed them before. Nothing is issued if there are no credentials, nor for a token that was signed for another user than the
// owner's. It returns what is in the Secret; nil if that holds no credentials of the owner.
func (r *applier) keepCredentials(ctx context.Context, secrets *secretReader, owner client.Object, name, user string, now time.Time) (*bus.Credentials, error) {
	at := types.NamespacedName{Namespace: owner.GetNamespace(), Name: name}
	current, err := secrets.get(ctx, at)
	if err != nil || current == nil || !metav1.IsControlledBy(current, owner) {
		return nil, err
	}
	claims, had := issuedToken(current), issued(current)
	if had == nil || owner.GetDeletionTimestamp() != nil || claims.Name != userName(user) {
		return had, nil
	}
	key, err := r.keyOf(ctx, secrets, owner.GetNamespace(), claims)
	if err != nil || key == nil {
		return had, err
	}
	creds, is, err := key.renewCredentials(claims, current, owner.GetAnnotations()[v1alpha1.AnnotationRotateCredentials], now)
	if err != nil || creds == nil {
		return had, err
	}
	secret, err := coreac.ExtractSecret(current, workload.FieldOwner)
	if err != nil {
		return had, err
	}
	defer secrets.forget(at)
	if _, err := r.applySecret(ctx, owner, current, secret.WithData(map[string][]byte{workload.KeyUserCreds: creds})); err != nil {
		return had, err
	}
	return is, nil
}

// keepUnreadable does that for a resource that cannot be read, whose status stays as it is.
func (r *applier) keepUnreadable(ctx context.Context, secrets *secretReader, statuses *statusWriter, name resource,
	owner client.Object, now time.Time, users ...secretOfUser,
) (ctrl.Result, error) {
	all := make([]*bus.Credentials, len(users))
	for i, u := range users {
		var err error
		if all[i], err = r.keepCredentials(ctx, secrets, owner, u.secret, u.user, now); err != nil {
			return ctrl.Result{}, err
		}
	}
	return statuses.noteExpiry(name, firstToExpire(all...), now), nil
}

// secretOfUser is the Secret that holds the credentials of a user, who has a name.
type secretOfUser struct{ secret, user string }

// keyOf finds the key that signed a token among those that the namespace's Sites name. It returns nil if none of them did: a writer of the
// Secret must not choose what an account signs, and a token can name any account.
func (r *applier) keyOf(ctx context.Context, secrets *secretReader, namespace string, claims *jwt.UserClaims) (*accountKey, error) {
	var sites v1alpha1.SiteList
	if err := r.client.List(ctx, &sites, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range sites.Items {
		needs := slices.Concat(workload.JetStreamSecrets(&sites.Items[i]), workload.ConsumerAccountSecrets(&sites.Items[i]))
		have, err := secrets.read(ctx, namespace, needs)
		if err != nil {
			return nil, err
		}
		for _, need := range needs {
			key, err := readAccountKey(have[need.Name])
			if err == nil && key.issuer == claims.Issuer && key.account == cmp.Or(claims.IssuerAccount, claims.Issuer) {
				return &key, nil
			}
		}
	}
	return nil, nil
}

// renewCredentials re-signs a token whose credentials are due, with the permissions that it has. The file is nil if the Secret's stays.
func (k accountKey) renewCredentials(claims *jwt.UserClaims, current *corev1.Secret, rotate string, now time.Time) ([]byte, *bus.Credentials, error) {
	had := issued(current)
	action := bus.JetStreamUser{}.Action(had, had.Permissions, rotate, now)
	return k.issue(action, claims, had.Permissions, bus.CredentialsLifetime, current, now)
}
