// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/natsaccounts"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// linkEvery is how often the link to a hub is looked at: nothing wakes the Site when it changes.
const linkEvery = 5 * time.Second

// UpstreamSecrets are the Secrets that the link to a hub needs.
func UpstreamSecrets(site *v1alpha1.Site) []workload.SecretNeed {
	up := &site.Spec.Upstream
	if up.URL == "" || !finding.IsStandalone(site) {
		return nil
	}
	needs := []workload.SecretNeed{{Field: accept.FieldUpstreamCredentials, Name: up.CredentialsSecretRef.Name, Keys: []string{workload.KeyUserCreds}}}
	return append(needs, workload.TLSSecrets("spec.upstream.tls", up.TLS)...)
}

// UpstreamLink is the link that a Site without a cluster wants; nil if it wants none, is not accepted, is being deleted, or lacks a Secret.
func UpstreamLink(v SiteView) *natsaccounts.Link {
	up := &v.Site.Spec.Upstream
	if up.URL == "" || !finding.IsStandalone(v.Site) || v.Site.DeletionTimestamp != nil || !SiteAccepted(v).OK() || v.Site.Spec.JetStream.AccountKeySecretRef == nil {
		return nil
	}
	if _, missing := v.Secrets.Missing(slices.Concat(UpstreamSecrets(v.Site), workload.JetStreamSecrets(v.Site))); missing {
		return nil
	}
	account := v.Secrets[v.Site.Spec.JetStream.AccountKeySecretRef.Name]
	link := &natsaccounts.Link{URL: up.URL, Account: strings.TrimSpace(string(account.Data[workload.KeyAccountID])), Credentials: v.Secrets[up.CredentialsSecretRef.Name].Data[workload.KeyUserCreds]}
	if up.TLS != nil && up.TLS.CASecretRef != nil {
		link.CA = v.Secrets[up.TLS.CASecretRef.Name].Data[workload.KeyCA]
	}
	if up.TLS != nil && up.TLS.CertificateSecretRef != nil {
		secret := v.Secrets[up.TLS.CertificateSecretRef.Name]
		link.Certificate, link.PrivateKey = secret.Data[workload.KeyCertificate], secret.Data[workload.KeyPrivateKey]
	}
	return link
}

// upstream says how the link to the hub does; false where the Site names no hub.
func (v SiteView) upstream(accepted finding.Finding) (finding.Finding, bool) {
	up := &v.Site.Spec.Upstream
	if up.URL == "" {
		return finding.Finding{}, false
	}
	if !finding.IsStandalone(v.Site) {
		return finding.Unknown(v1alpha1.ReasonLinkedByServers, "spec.upstream does nothing here: it is for a Site that substorm up runs. "+
			"The NATS servers of this Site have the link to a hub in their own configuration: docs/how-to/leaf.md says how"), true
	}
	if f, missing := v.Secrets.Missing(UpstreamSecrets(v.Site)); missing {
		return f, true
	}
	switch {
	case !accepted.OK():
		return finding.Unknown(v1alpha1.ReasonNotTried, "the hub is left alone until the Site is accepted"), true
	case v.Link == nil:
		return finding.Unknown(v1alpha1.ReasonReconciling, "the link to the hub is being made"), true
	}
	return linkFinding(v.Link, up), true
}

// meanwhile describes data that does not reach the hub while the link is down.
const meanwhile = "; what this Site receives meanwhile stays in its streams, for as long as spec.jetStream has them hold it, and comes when the link is back"

func linkFinding(s *natsaccounts.LinkState, up *v1alpha1.Upstream) finding.Finding {
	says := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(s.Problem), text) })
	}
	secret := fmt.Sprintf("Secret %q, which spec.upstream.credentialsSecretRef names", up.CredentialsSecretRef.Name)
	switch {
	case s.Linked:
		return finding.Good(v1alpha1.ReasonReachable, fmt.Sprintf("our NATS server is linked to that of the hub at %s", up.URL))
	case s.Unusable != "":
		return finding.Bad(v1alpha1.ReasonSecretIncomplete, fmt.Sprintf("the link to the hub at %s cannot be tried: %s", up.URL, s.Unusable))
	case s.Problem == "":
		return finding.Unknown(v1alpha1.ReasonReconciling, fmt.Sprintf("the hub at %s has not answered yet", up.URL))
	case says("authorization violation", "authentication"):
		return finding.Bad(v1alpha1.ReasonAccessDenied, fmt.Sprintf("the hub at %s refuses the credentials in %s (%s): "+
			"carry the Secret that the hub's operator issues for this leaf, <hub>-leaf-<code>, to this Site%s", up.URL, secret, finding.Abridge(s.Problem), meanwhile))
	case says("x509:", "tls:", "handshake"):
		return finding.Bad(v1alpha1.ReasonRefused, fmt.Sprintf("the hub at %s and this Site do not agree on TLS (%s): "+
			"name the authority of its certificate in spec.upstream.tls.caSecretRef, and a host that is in the certificate in spec.upstream.url%s", up.URL, finding.Abridge(s.Problem), meanwhile))
	case says("wrong port"):
		return finding.Bad(v1alpha1.ReasonRefused, fmt.Sprintf("%s is no port for leaves (%s): "+
			"name that which leafnodes in the hub's nats.conf opens, 7422 on most servers%s", up.URL, finding.Abridge(s.Problem), meanwhile))
	}
	return finding.Bad(v1alpha1.ReasonUnreachable, fmt.Sprintf("the hub at %s is not reached (%s): see that the network is up, and that the hub's NATS server runs and takes leaves at that port%s",
		up.URL, finding.Abridge(s.Problem), meanwhile))
}
