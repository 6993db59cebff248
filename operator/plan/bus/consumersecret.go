// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"cmp"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// Keys of a FeedConsumer's Secret, beside KeyUserCreds and KeyCA.
const (
	// KeyToken is the token that the consumer connects with, KeyURL the address.
	KeyToken = "token"
	KeyURL   = "url"
	// KeyNATSURL has the servers, separated by commas; KeyStreams the streams that the consumer reads, separated by commas too; KeyDurable
	// is the name of its durable in each.
	KeyNATSURL     = "nats-url"
	KeyStreams     = "streams"
	KeyDurable     = "durable"
	KeyInboxPrefix = "inbox-prefix"
	// KeyAPIPrefix is the prefix of the subjects of its requests to JetStream.
	KeyAPIPrefix = "api-prefix"
)

// ConsumerSecretName is the name of the Secret that is written for a FeedConsumer.
func ConsumerSecretName(c *v1alpha1.FeedConsumer) string {
	if finding.Unreadable(c) != "" { // spec.secretName may be the field that cannot be decoded
		return cmp.Or(c.Spec.SecretName, c.Status.SecretName, c.Name+"-consumer")
	}
	return cmp.Or(c.Spec.SecretName, c.Name+"-consumer")
}

// ConsumerSecrets are the Secrets with the tokens of FeedConsumers, or the names of their durables.
func ConsumerSecrets(consumers []v1alpha1.FeedConsumer) []workload.SecretNeed {
	needs := make([]workload.SecretNeed, len(consumers))
	for i := range consumers {
		needs[i] = workload.SecretNeed{Name: ConsumerSecretName(&consumers[i])}
	}
	return needs
}

// ConsumerDurables are the names of the durables of FeedConsumers of delivery NATS, as
// their Secrets have them: of those whose Secret is there.
func ConsumerDurables(consumers []v1alpha1.FeedConsumer, secrets workload.Secrets) map[string]string {
	all := map[string]string{}
	for i := range consumers {
		if name := KeptDurable(&consumers[i], secrets[ConsumerSecretName(&consumers[i])]); name != "" {
			all[consumers[i].Name] = name
		}
	}
	return all
}

// KeptDurable is the name of the durables that the credentials in a FeedConsumer's Secret open; empty if they open nothing, and others are
// to be issued. A client with earlier credentials must not open what these open, so a Secret that is recreated names other durables.
func KeptDurable(c *v1alpha1.FeedConsumer, secret *corev1.Secret) string {
	if c.Spec.Delivery.Type != v1alpha1.DeliveryNATS || secret == nil || !metav1.IsControlledBy(secret, c) || len(secret.Data[workload.KeyUserCreds]) == 0 {
		return ""
	}
	durable := string(secret.Data[KeyDurable])
	if consumer, ok := wire.ParseConsumerDurable(durable); !ok || consumer != c.Name || !durableName.MatchString(durable) {
		return ""
	}
	return durable
}

// durableName: a value from a Secret becomes part of subjects.
var durableName = regexp.MustCompile(`^[a-z0-9_-]+$`)

// ConsumerTokens are the hashes of a FeedConsumer's token. Without a Secret of its own, it has only a hash that no token matches.
func ConsumerTokens(c *v1alpha1.FeedConsumer, secrets workload.Secrets, was []wire.TokenHash) []wire.TokenHash {
	secret := secrets[ConsumerSecretName(c)]
	if secret == nil || !metav1.IsControlledBy(secret, c) || accept.TooGuessable(secret, KeyToken) {
		return []wire.TokenHash{wire.NoToken()}
	}
	return accept.HashTokens(c.UID, secret, KeyToken, was)
}

// GoodToken says whether a FeedConsumer's Secret holds a token that may stay.
func GoodToken(secret *corev1.Secret) bool { return !accept.TooGuessable(secret, KeyToken) }

// ConsumerAccess is all that a FeedConsumer needs to connect, except random values.
type ConsumerAccess struct {
	Site     *v1alpha1.Site
	Feed     *v1alpha1.Feed
	Consumer *v1alpha1.FeedConsumer
	Verdict  accept.ConsumerVerdict
	// Durable is the name of its durables, with delivery NATS.
	Durable string
	// Server is the FeedServer whose address it gets, see ConsumersServer; nil if the Site has none. Services are that FeedServer's own,
	// for the address.
	Server   *v1alpha1.FeedServer
	Services []corev1.Service
	// CA of the NATS servers; empty if a public authority signed.
	CA []byte
}

// User is the consumer's JetStream user; nil for deliveries other than NATS.
func (a ConsumerAccess) User() *JetStreamUser {
	if a.Consumer.Spec.Delivery.Type != v1alpha1.DeliveryNATS {
		return nil
	}
	return new(ConsumerUser(a.Site, a.Feed, a.Consumer, a.Verdict, a.Durable))
}

// URL to connect to; empty for delivery NATS, and without feed servers.
func (a ConsumerAccess) URL() string {
	if a.Server == nil {
		return ""
	}
	base := workload.FeedServerURL(a.Server, a.Services)
	query := "?consumer=" + a.Consumer.Name
	switch a.Consumer.Spec.Delivery.Type {
	case v1alpha1.DeliveryWebSocket:
		return "ws" + strings.TrimPrefix(base, "http") + "/feeds/" + a.Feed.Name + "/ws" + query
	case v1alpha1.DeliveryServerSentEvents:
		return base + "/feeds/" + a.Feed.Name + "/events" + query
	default:
		return ""
	}
}

// Data is the Secret's content beside credentials or token.
func (a ConsumerAccess) Data() map[string][]byte {
	if a.Consumer.Spec.Delivery.Type != v1alpha1.DeliveryNATS {
		return map[string][]byte{KeyURL: []byte(a.URL())}
	}
	data := map[string][]byte{
		KeyNATSURL:     []byte(strings.Join(a.Site.Spec.JetStream.Servers, ",")),
		KeyStreams:     []byte(strings.Join(consumerStreams(a.Site, a.Feed, a.Consumer, a.Verdict), ",")),
		KeyDurable:     []byte(a.Durable),
		KeyInboxPrefix: []byte(ConsumerInbox(a.Site, a.Durable)),
		KeyAPIPrefix:   []byte(wire.ConsumerAPI),
	}
	if len(a.CA) > 0 {
		data[workload.KeyCA] = a.CA
	}
	return data
}

// Secret holds data, and the hash of the permissions of the credentials in it.
func (a ConsumerAccess) Secret(data map[string][]byte, permissions string) *coreac.SecretApplyConfiguration {
	c := a.Consumer
	s := coreac.Secret(ConsumerSecretName(c), c.Namespace).
		WithLabels(map[string]string{
			workload.LabelName: "feed-consumer", workload.LabelInstance: c.Name, workload.LabelComponent: "consumer", workload.LabelPartOf: "substorm", workload.LabelManagedBy: workload.FieldOwner,
		}).
		WithOwnerReferences(metaac.OwnerReference().
			WithAPIVersion(v1alpha1.GroupVersion.String()).
			WithKind("FeedConsumer").
			WithName(c.Name).
			WithUID(c.UID).
			WithController(true)).
		WithType(corev1.SecretTypeOpaque).
		WithData(data)
	if permissions != "" {
		s.WithAnnotations(map[string]string{workload.AnnotationPermissions: permissions})
	}
	return s
}
