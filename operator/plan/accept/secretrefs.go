// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// SecretReference is a field of an object of ours that names a Secret which others write.
type SecretReference struct {
	Kind, Object, Field string
	// Secret is the name.
	Secret string
}

// SecretReferences are those of one object.
func SecretReferences(o metav1.Object) []SecretReference {
	var kind string
	var needs []workload.SecretNeed
	switch o := o.(type) {
	case *v1alpha1.Site:
		kind, needs = "Site", siteReferences(o)
	case *v1alpha1.IngestGateway:
		kind, needs = "IngestGateway", workload.PoolSecrets(o)
	case *v1alpha1.FeedServer:
		kind, needs = "FeedServer", workload.TLSSecrets("spec.tls", o.Spec.TLS)
	case *v1alpha1.MirrorPartner:
		kind, needs = "MirrorPartner", workload.PartnerSecrets(o)
	case *v1alpha1.Instrument:
		kind, needs = "Instrument", TokenSecrets(o)
	}
	var all []SecretReference
	for _, need := range needs {
		if need.Name != "" {
			all = append(all, SecretReference{kind, o.GetName(), need.Field, need.Name})
		}
	}
	return all
}

func siteReferences(site *v1alpha1.Site) []workload.SecretNeed {
	needs := slices.Concat(workload.ObjectStoreSecrets(site), workload.JetStreamSecrets(site), workload.ConsumerAccountSecrets(site), workload.CommandAccountSecrets(site),
		workload.LeavesAccountSecrets(site), ReadersSecrets(site))
	store := &site.Spec.ObjectStore
	if ref := store.ReadCredentialsSecretRef; ref != nil {
		needs = append(needs, workload.SecretNeed{Field: "spec.objectStore.readCredentialsSecretRef", Name: ref.Name})
	}
	if ref := store.GatewayCredentialsSecretRef; ref != nil {
		needs = append(needs, workload.SecretNeed{Field: "spec.objectStore.gatewayCredentialsSecretRef", Name: ref.Name})
	}
	needs = append(needs, workload.SecretNeed{Field: FieldUpstreamCredentials, Name: site.Spec.Upstream.CredentialsSecretRef.Name})
	return append(needs, workload.TLSSecrets("spec.upstream.tls", site.Spec.Upstream.TLS)...)
}

// FieldUpstreamCredentials names the Secret that the hub's operator writes for a leaf.
const FieldUpstreamCredentials = "spec.upstream.credentialsSecretRef"

// mayWrite returns whether the operator may create a Secret for an object of a kind under a name to which a field refers. The reader of
// that field would trust a Secret that the operator writes for another purpose, on behalf of any user who may write objects of the kind.
func mayWrite(writer string, ref SecretReference) bool {
	switch {
	case writer == "Site" && ref.Field == FieldUpstreamCredentials:
		return true // the credentials of a leaf are written for this field, of a Site of the same namespace too
	case ref.Kind == "Instrument":
		// Only Secrets with LabelTokens are read there, which none of ours has. A user who may write Instruments must not keep pools and
		// Sites from their credentials.
		return writer != "FeedConsumer"
	default:
		return false
	}
}

// SecretReferred looks for the reference that keeps the operator from creating a Secret for an object
// of a kind. References are those to its name.
func SecretReferred(writer, name string, references []SecretReference) (finding.Finding, bool) {
	for _, ref := range references {
		if mayWrite(writer, ref) {
			continue
		}
		return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
			"the operator does not create Secret %q for this %s, because %s of %s %q names a Secret of that name: create that Secret, or correct that field, or give this %s another name",
			name, writer, ref.Field, ref.Kind, ref.Object, writer)), true
	}
	return finding.Finding{}, false
}

// LabelTokens, with the value "true", is on each Secret that holds tokens which clients present to us: those that Instruments name in
// tokenSecretKeyRef, and that of a Site's readers. A user who may write Instruments but no Secrets cannot have the operator read others,
// nor learn from conditions and refusals what is in them; and a Secret that was made for another purpose admits no client.
const LabelTokens = "substorm.dev/tokens"

// HoldsTokens returns whether the tokens of a Secret may be added to those that are accepted. Secrets that the operator writes are never
// such, whatever label was put on them.
func HoldsTokens(secret *corev1.Secret) bool {
	return secret != nil && secret.Labels[LabelTokens] == "true" && !WrittenByOperator(secret)
}

// WrittenByOperator says whether the operator wrote a Secret.
func WrittenByOperator(secret *corev1.Secret) bool {
	owner := metav1.GetControllerOfNoCopy(secret)
	return secret.Labels[workload.LabelManagedBy] == workload.FieldOwner || owner != nil && owner.APIVersion == v1alpha1.GroupVersion.String()
}

// NotTokens says why the tokens of a Secret that a field names are not taken, see holdsTokens.
func NotTokens(secret *corev1.Secret, name, field string) (finding.Finding, bool) {
	switch {
	case secret == nil || HoldsTokens(secret):
		return finding.Finding{}, false
	case WrittenByOperator(secret):
		return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
			"Secret %q, which %s names, is written by the operator, and none of its values is taken as a token: create another Secret for the tokens, and name that one",
			name, field)), true
	default:
		return finding.Bad(v1alpha1.ReasonSecretNotLabeled, fmt.Sprintf(
			"Secret %q, which %s names, is not labeled as one with tokens: if it is, run `kubectl label secret %s %s=true`; until then no token of it is added",
			name, field, name, LabelTokens)), true
	}
}
