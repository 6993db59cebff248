// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// FeedServerView is what was found of a Site's feed servers.
type FeedServerView struct {
	SiteProgramView
	Services []corev1.Service
	Reports  []FeedServerReport
}

var feedServerChecks = []check[SiteView]{
	func(v SiteView) (Finding, bool) { return v.Secrets.Missing(FeedServerSecrets(v.Site)) },
	func(v SiteView) (Finding, bool) { return v.FeedServer.refused() },
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

func feedServerIsNotRolledOut(v SiteView) (Finding, bool) {
	return programIsNotRolledOut("feed servers", v.FeedServer.SiteProgramView, v.Site.Spec.FeedServer.Replicas)
}

func (v SiteView) feedServerState() *v1alpha1.FeedServerState {
	if v.Site.Spec.FeedServer == nil {
		return nil
	}
	state := &v1alpha1.FeedServerState{
		URL: FeedServerURL(v.Site, v.FeedServer.Services), Credentials: v.FeedServer.Credentials.status(), ReadyReplicas: v.FeedServer.readyReplicas(),
	}
	for _, r := range freshServers(v.FeedServer.Reports, v.Now) {
		state.Connections += int32(r.Connections)
	}
	return state
}

// SiteObjectNotOurs says that an object has a name that one of a Site's programs needs.
func SiteObjectNotOurs(kind, name string) Finding {
	return bad(v1alpha1.ReasonConflict, fmt.Sprintf("a %s %q that is not this Site's has a name that the Site needs: remove it", kind, name))
}

// ConsumerSecretNotOurs says that a FeedConsumer's Secret has the name of another.
func ConsumerSecretNotOurs(name string) Finding {
	return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
		"a Secret %q that is not this FeedConsumer's stands in the way: remove it, or make the FeedConsumer anew with another spec.secretName", name))
}
