// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/feeds"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

const kindFeedConsumer = "FeedConsumer"

// tokenBytes of chance in a consumer's token.
const tokenBytes = 32

// consumerReconciler writes the Secrets of FeedConsumers and keeps their status.
// Their registry entries are the registryReconciler's, their durables the link's.
type consumerReconciler struct {
	*applier
	links    *links
	wakers   *wakers
	secrets  *secretReader
	statuses *statusWriter
}

// Reconcile applies a consumer's Secret and plans its status.
func (r *consumerReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	name := resource{kindFeedConsumer, req.NamespacedName}
	consumer := &v1alpha1.FeedConsumer{}
	if err := r.client.Get(ctx, req.NamespacedName, consumer); apierrors.IsNotFound(err) {
		r.statuses.forget(name)
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if finding.Unreadable(consumer) != "" { // objects that were made for it stay as they are
		return r.keepUnreadable(ctx, r.secrets, r.statuses, name, consumer, r.links.now(), secretOfUser{bus.ConsumerSecretName(consumer), bus.ConsumerUserName(consumer)})
	}
	restoreNewestStatus(r.statuses, name, consumer, &consumer.Status)
	feed, err := optional(ctx, r.client, types.NamespacedName{Namespace: consumer.Namespace, Name: consumer.Spec.FeedRef.Name}, &v1alpha1.Feed{})
	if err != nil {
		return ctrl.Result{}, err
	}
	if feed != nil && feed.DeletionTimestamp != nil {
		feed = nil
	}
	view := feeds.ConsumerView{Now: r.links.now(), Consumer: consumer}
	p := planned{resource: name, object: consumer}
	var failed error
	if feed == nil {
		view.Verdict = accept.OrphanConsumer(consumer)
		view.Credentials, failed = r.keepCredentials(ctx, r.secrets, consumer, bus.ConsumerSecretName(consumer), bus.ConsumerUserName(consumer), view.Now)
	} else {
		p.site = types.NamespacedName{Namespace: feed.Namespace, Name: feed.Spec.SiteRef.Name}
		if view.Site, err = optional(ctx, r.client, p.site, &v1alpha1.Site{}); err != nil {
			return ctrl.Result{}, err
		}
		f := r.links.facts(p.site)
		if !f.readConsumer(&view) {
			// The registry's controller has not come to it yet, and wakes this one; it does not
			// while the Site cannot be read.
			return r.keepUnreadable(ctx, r.secrets, r.statuses, name, consumer, view.Now, secretOfUser{bus.ConsumerSecretName(consumer), bus.ConsumerUserName(consumer)})
		}
		view.Servers, view.Reports = f.reports.ofFeedServers(), f.reports.ofConsumer(consumer.Name)
		servers, err := serversOf(ctx, r.client, p.site)
		if err != nil {
			return ctrl.Result{}, err
		}
		view.Server = accept.ConsumersServer(servers)
		failed = r.admit(ctx, feed, &view)
	}
	status, wait := feeds.ConsumerStatus(view)
	if view.Site != nil {
		p.code = view.Site.Spec.Code
		r.links.facts(p.site).settle(kindFeedConsumer, consumer.Name, finding.Of(status.Conditions, v1alpha1.ConditionReady).OK())
	}
	p.was, p.is, p.wasConds, p.isConds = &consumer.Status, &status, consumer.Status.Conditions, status.Conditions
	p.urgency, p.expiresAt = plan.ConsumerUrgency(&consumer.Status, &status), expiry(view.Credentials)
	r.statuses.submit(p)
	if failed != nil {
		return ctrl.Result{}, failed
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// admit ensures that the consumer has what it needs to connect, and that its credentials stay valid while it is not admitted.
func (r *consumerReconciler) admit(ctx context.Context, feed *v1alpha1.Feed, view *feeds.ConsumerView) (err error) {
	if view.Site == nil || finding.Unreadable(view.Site) != "" || !view.Verdict.Served {
		view.Credentials, err = r.keepCredentials(ctx, r.secrets, view.Consumer, bus.ConsumerSecretName(view.Consumer), bus.ConsumerUserName(view.Consumer), view.Now)
		return err
	}
	access := bus.ConsumerAccess{Site: view.Site, Feed: feed, Consumer: view.Consumer, Verdict: view.Verdict}
	if access.Server = view.Server; access.Server != nil {
		if access.Services, err = servicesOf(ctx, r.client, access.Server); err != nil {
			return err
		}
	}
	view.URL = access.URL()
	view.Failed, view.Credentials, err = r.applyAccess(ctx, access, view.Now)
	return err
}

// applyAccess maintains the consumer's Secret. Credentials are reissued if the plan says so, and an existing token stays. It returns the
// credentials in the Secret.
func (r *consumerReconciler) applyAccess(ctx context.Context, access bus.ConsumerAccess, now time.Time) (*finding.Finding, *bus.Credentials, error) {
	site, consumer := access.Site, access.Consumer
	name := bus.ConsumerSecretName(consumer)
	needs := slices.Concat(workload.JetStreamSecrets(site), workload.ConsumerAccountSecrets(site), []workload.SecretNeed{{Name: name}})
	secrets, err := r.secrets.read(ctx, consumer.Namespace, needs)
	if err != nil {
		return nil, nil, err
	}
	current := secrets[name]
	if current != nil && !metav1.IsControlledBy(current, consumer) {
		return new(plan.ConsumerSecretNotOurs(name)), nil, nil
	}
	if tls := site.Spec.JetStream.TLS; tls != nil && tls.CASecretRef != nil && secrets[tls.CASecretRef.Name] != nil {
		access.CA = secrets[tls.CASecretRef.Name].Data[workload.KeyCA]
	}
	if access.Durable, err = durableIn(consumer, current); err != nil {
		return nil, nil, err
	}
	data, is, problem, err := r.secretData(access, current, secrets, now)
	if problem != nil || err != nil {
		return problem, issued(current), err
	}
	permissions := ""
	if is != nil {
		permissions = is.Permissions
	}
	if current != nil && maps.EqualFunc(current.Data, data, bytes.Equal) && current.Annotations[workload.AnnotationPermissions] == permissions {
		return nil, is, nil
	}
	problem, err = r.applySecret(ctx, consumer, current, access.Secret(data, permissions))
	r.secrets.forget(types.NamespacedName{Namespace: consumer.Namespace, Name: name})
	r.wakers.registries.wake(types.NamespacedName{Namespace: site.Namespace, Name: site.Name}) // the token is in the registry
	if problem != nil || err != nil {
		is = issued(current)
	}
	return problem, is, err
}

// issueBytes is how many random bytes distinguish the credentials of a consumer from earlier ones.
const issueBytes = 5

// durableIn is the name of the durables that a consumer's Secret names; of new ones
// where it names none.
func durableIn(consumer *v1alpha1.FeedConsumer, current *corev1.Secret) (string, error) {
	if consumer.Spec.Delivery.Type != v1alpha1.DeliveryNATS {
		return "", nil
	}
	if kept := bus.KeptDurable(consumer, current); kept != "" {
		return kept, nil
	}
	chance := make([]byte, issueBytes)
	if _, err := rand.Read(chance); err != nil {
		return "", err
	}
	return wire.ConsumerDurable(consumer.Name, hex.EncodeToString(chance)), nil
}

// secretData returns the planned content of the Secret, and the credentials in it.
func (r *consumerReconciler) secretData(access bus.ConsumerAccess, current *corev1.Secret, secrets workload.Secrets, now time.Time) (
	data map[string][]byte, is *bus.Credentials, problem *finding.Finding, err error,
) {
	data = access.Data()
	user := access.User()
	if user == nil {
		if current != nil && bus.GoodToken(current) {
			data[bus.KeyToken] = current.Data[bus.KeyToken]
			return data, nil, nil, nil
		}
		chance := make([]byte, tokenBytes)
		if _, err = rand.Read(chance); err != nil {
			return nil, nil, nil, err
		}
		data[bus.KeyToken] = []byte(hex.EncodeToString(chance))
		return data, nil, nil, nil
	}
	key, problem := consumerAccountKey(access.Site, secrets)
	if problem != nil {
		return nil, nil, problem, nil
	}
	creds, is, err := key.credentials(*user, current, access.Consumer.Annotations[v1alpha1.AnnotationRotateCredentials], now)
	if creds == nil && err == nil {
		creds = current.Data[workload.KeyUserCreds]
	}
	data[workload.KeyUserCreds] = creds
	return data, is, nil, err
}
