// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// FeedServerView is what was found of a Site's feed servers.
type FeedServerView struct {
	// Failed is what the API server refused, see ApplyFailed.
	Failed *Finding
	// Deployment is nil where there is none.
	Deployment *appsv1.Deployment
	Pods       []corev1.Pod
	Services   []corev1.Service
	Reports    []FeedServerReport
	// Credentials are those of their user; nil where there are none of ours.
	Credentials *Credentials
}

var feedServerChecks = []check[SiteView]{
	func(v SiteView) (Finding, bool) { return v.Secrets.Missing(FeedServerSecrets(v.Site)) },
	feedServerIsRefused,
	feedServerIsNotRolledOut,
}

// feedServerAvailable returns false where the Site has no feed servers.
func (v SiteView) feedServerAvailable() (Finding, bool) {
	if v.Site.Spec.FeedServer == nil {
		return Finding{}, false
	}
	asked := v.Site.Spec.FeedServer.Replicas
	return first(v, feedServerChecks, good(v1alpha1.ReasonAvailable, count(asked, asked)+" feed servers are ready")), true
}

func feedServerIsRefused(v SiteView) (Finding, bool) {
	if v.FeedServer.Failed == nil {
		return Finding{}, false
	}
	return *v.FeedServer.Failed, true
}

func feedServerIsNotRolledOut(v SiteView) (Finding, bool) {
	d, asked := v.FeedServer.Deployment, v.Site.Spec.FeedServer.Replicas
	var lacks string
	switch {
	case d == nil:
		lacks = "the Deployment of the feed servers is not there yet"
	case d.Status.ObservedGeneration < d.Generation || *replicasOf(d.Spec.Replicas) != asked:
		lacks = "the Deployment of the feed servers is being changed"
	case d.Status.ReadyReplicas < asked:
		lacks = count(d.Status.ReadyReplicas, asked) + " feed servers are ready"
	case d.Status.UpdatedReplicas < asked:
		lacks = count(d.Status.UpdatedReplicas, asked) + " feed servers run the newest revision"
	default:
		return Finding{}, false
	}
	if problem := PodProblem(v.FeedServer.Pods); problem != "" {
		lacks += "; " + problem
	}
	return bad(v1alpha1.ReasonProgressing, lacks), true
}

func (v SiteView) feedServerState() *v1alpha1.FeedServerState {
	if v.Site.Spec.FeedServer == nil {
		return nil
	}
	state := &v1alpha1.FeedServerState{URL: FeedServerURL(v.Site, v.FeedServer.Services), Credentials: v.FeedServer.Credentials.status()}
	if v.FeedServer.Deployment != nil {
		state.ReadyReplicas = v.FeedServer.Deployment.Status.ReadyReplicas
	}
	for _, r := range freshServers(v.FeedServer.Reports, v.Now) {
		state.Connections += int32(r.Connections)
	}
	return state
}

// SiteObjectNotOurs says that an object has a name that a Site's feed servers need.
func SiteObjectNotOurs(kind, name string) Finding {
	return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
		"a %s %q that is not this Site's stands in the way of its feed servers: remove it", kind, name))
}

// ConsumerSecretNotOurs says that a FeedConsumer's Secret has the name of another.
func ConsumerSecretNotOurs(name string) Finding {
	return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
		"a Secret %q that is not this FeedConsumer's stands in the way: remove it, or make the FeedConsumer anew with another spec.secretName", name))
}
