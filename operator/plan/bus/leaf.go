// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

// Source is a stream in another JetStream domain whose messages a stream of ours
// holds too, with their subjects and headers.
type Source struct {
	Stream string `json:"stream"`
	// Subjects that are taken, and under which they are stored; the leaf's own first.
	Subjects []wire.SourcedSubject `json:"subjects"`
	// APIPrefix begins the subjects on which the other domain's JetStream is asked,
	// and DeliverPrefix those on which it delivers.
	APIPrefix     string `json:"apiPrefix"`
	DeliverPrefix string `json:"deliverPrefix"`
	// From is the first sequence that is wanted of a stream that nothing was taken
	// of yet. Without it JetStream would begin at the time of our newest message.
	From uint64 `json:"from"`
}

// DeleteConsumer is the subject on which the other domain is asked to delete a consumer of the stream.
func (s Source) DeleteConsumer(name string) string {
	return s.APIPrefix + ".CONSUMER.DELETE." + s.Stream + "." + name
}

// LeafUser is the user with which a leaf's NATS server links to ours, in the account of leaves. The
// messages that it may publish travel to us, and those that it may subscribe to travel to the leaf: we
// make and delete the consumers that source its two base streams and pace them, it answers and
// delivers. It sees nothing that is ours, and can write into no stream.
func LeafUser(site *v1alpha1.Site, leaf v1alpha1.Leaf) JetStreamUser {
	u := JetStreamUser{
		Name:     "leaf " + leaf.Code + " of " + site.Namespace + "/" + site.Name,
		LeafOnly: true,
		Publish:  []string{wire.SourcedPrefix(site.Spec.Code, leaf.Code) + ".>", "$JSC.R.>"},
	}
	api := wire.JetStreamAPI(cmp.Or(leaf.Domain, leaf.Code))
	for _, stream := range []string{wire.ObservationStream(leaf.Code), wire.NoticeStream(leaf.Code)} {
		u.Subscribe = append(u.Subscribe,
			// If several subjects are sourced, the server asks without a name.
			api+".CONSUMER.CREATE."+stream,
			api+".CONSUMER.CREATE."+stream+".>",
			api+".CONSUMER.DELETE."+stream+".*",
			"$JS.FC."+stream+".>",
			// With domain and account before the stream: the form that newer servers can be configured to use (nats-server's feature
			// js_ack_fc_v2).
			"$JS.FC.*.*."+stream+".>")
	}
	return u
}

// LeafSecretName is the name of the Secret with the credentials that a leaf's NATS
// server links with.
func LeafSecretName(site *v1alpha1.Site, leaf v1alpha1.Leaf) string {
	return site.Name + "-leaf-" + leaf.Code
}

// LeafSecret holds a leaf's credentials, and the hash of their permissions. It is to be carried to the leaf.
func LeafSecret(site *v1alpha1.Site, leaf v1alpha1.Leaf, creds []byte, permissions string) *coreac.SecretApplyConfiguration {
	return coreac.Secret(LeafSecretName(site, leaf), site.Namespace).
		WithLabels(map[string]string{
			workload.LabelName: "leaf", workload.LabelInstance: site.Name, workload.LabelComponent: "leaf", workload.LabelPartOf: "substorm", workload.LabelManagedBy: workload.FieldOwner,
		}).
		WithAnnotations(map[string]string{workload.AnnotationPermissions: permissions}).
		WithOwnerReferences(metaac.OwnerReference().
			WithAPIVersion(v1alpha1.GroupVersion.String()).
			WithKind("Site").
			WithName(site.Name).
			WithUID(site.UID).
			WithController(true)).
		WithType(corev1.SecretTypeOpaque).
		WithData(map[string][]byte{workload.KeyUserCreds: creds})
}
