// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// leafPatience is how long a leaf may be unheard and still count as connected. A
// server whose link stands and that has nothing to send beats each second, and is
// asked anew after ten.
const leafPatience = 30 * time.Second

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

// LeafUser is the user with which a leaf's NATS server links to ours, in the account of
// leaves. What it may publish travels to us, and what it may subscribe to travels to the leaf: we make
// and delete the consumers that source its two base streams and pace them, it
// answers and delivers. It sees nothing that is ours, and can write into no stream.
func LeafUser(site *v1alpha1.Site, leaf v1alpha1.Leaf) JetStreamUser {
	u := JetStreamUser{
		Name:     "leaf " + leaf.Code + " of " + site.Namespace + "/" + site.Name,
		LeafOnly: true,
		Publish:  []string{wire.SourcedPrefix(site.Spec.Code, leaf.Code) + ".>", "$JSC.R.>"},
	}
	api := wire.JetStreamAPI(cmp.Or(leaf.Domain, leaf.Code))
	for _, stream := range []string{wire.ObservationStream(leaf.Code), wire.NoticeStream(leaf.Code)} {
		u.Subscribe = append(u.Subscribe,
			// Where several subjects are sourced the server asks without a name.
			api+".CONSUMER.CREATE."+stream,
			api+".CONSUMER.CREATE."+stream+".>",
			api+".CONSUMER.DELETE."+stream+".*",
			"$JS.FC."+stream+".>",
			// With domain and account before the stream: the form that newer
			// servers can be told to use (nats-server's feature js_ack_fc_v2).
			"$JS.FC.*.*."+stream+".>")
	}
	return u
}

// LeafSecretName is the name of the Secret with the credentials that a leaf's NATS
// server links with.
func LeafSecretName(site *v1alpha1.Site, leaf v1alpha1.Leaf) string {
	return site.Name + "-leaf-" + leaf.Code
}

// LeafSecret holds a leaf's credentials, and the hash of what they allow. It is to
// be carried to the leaf.
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

// LeafReport is what our NATS server said of a leaf's two base streams, and of their copies
// on the way to ours.
type LeafReport struct {
	// At is when it was asked.
	At time.Time `json:"at"`
	// SeenAt is when the one of them that is heard less was last heard; zero: not since our
	// server began.
	SeenAt time.Time `json:"seenAt,omitzero"`
	// Lag in messages that the leaf or a copy holds and our streams don't.
	Lag uint64 `json:"lag"`
	// Problem is what our server cannot do.
	Problem string `json:"problem,omitempty"`
}

// Connected says whether both streams are heard.
func (r LeafReport) Connected() bool { return !r.SeenAt.IsZero() && r.At.Sub(r.SeenAt) <= leafPatience }

// leaves sums up how the leaves do; nil where the Site has none. Jetstream says
// whether our own server answers.
func (v SiteView) leaves(jetStream finding.Finding) ([]v1alpha1.LeafStatus, *finding.Finding) {
	if len(v.Site.Spec.Leaves) == 0 {
		return nil, nil
	}
	var all []v1alpha1.LeafStatus
	var away []string
	unheard := 0
	for _, leaf := range v.Site.Spec.Leaves {
		report, reported := v.Backends.Leaves[leaf.Code]
		status := v.leafStatus(leaf.Code, report, reported)
		all = append(all, status)
		switch {
		case !reported:
			unheard++
		case status.Link != v1alpha1.LeafConnected:
			away = append(away, describeAway(status))
		}
	}
	f := finding.Good(v1alpha1.ReasonReachable, fmt.Sprintf("%d of %d leaves are connected", len(all), len(all)))
	missing, noKey := v.leavesHaveNoAccountKey()
	secret, noSecret := v.Secrets.Missing(workload.LeavesAccountSecrets(v.Site))
	switch {
	case finding.IsStandalone(v.Site):
		f = finding.Bad(v1alpha1.ReasonStandalone, "spec.leaves: substorm up opens no port for leaves, "+
			"so it cannot be the hub of others: run the hub on a cluster, or have the leaves mirrored (MirrorPartner)")
	case noKey:
		f = missing
	case noSecret:
		f = secret
	case v.LeafFailed != nil:
		f = *v.LeafFailed
	case !jetStream.OK():
		f = finding.Unknown(v1alpha1.ReasonReconciling, "leaves are asked through our own JetStream, which does not answer")
	case v.Backends.LeavesAccount != nil:
		f = *v.Backends.LeavesAccount
	case len(away) > 0:
		f = finding.Bad(v1alpha1.ReasonLeafAway, fmt.Sprintf("%d of %d leaves are away: %s. What they receive meanwhile stays in their streams, "+
			"for as long as those hold it, and comes when the link is back: see that the leaf's NATS server runs and reaches the leaf port of ours",
			len(away), len(all), strings.Join(away, "; ")))
	case unheard > 0:
		f = finding.Unknown(v1alpha1.ReasonReconciling, "our JetStream has not said yet how the leaves do")
	}
	return all, &f
}

func (v SiteView) leafStatus(code string, report LeafReport, reported bool) v1alpha1.LeafStatus {
	var was v1alpha1.LeafStatus
	for _, s := range v.Site.Status.Leaves {
		if s.Code == code {
			was = s
		}
	}
	if !reported {
		was.Code, was.Link = code, v1alpha1.LeafDisconnected
		return was
	}
	is := v1alpha1.LeafStatus{Code: code, Link: v1alpha1.LeafDisconnected, LastSeenTime: was.LastSeenTime,
		LagMessageCount: was.LagMessageCount, Problem: finding.Abridge(report.Problem)}
	switch {
	case report.Connected():
		is.Link, is.LastSeenTime, is.LagMessageCount = v1alpha1.LeafConnected, rounded(report.SeenAt), new(int64(report.Lag))
	case !report.SeenAt.IsZero() && (was.Link == v1alpha1.LeafConnected || was.LastSeenTime == nil || was.LastSeenTime.Sub(report.SeenAt).Abs() > leafPatience):
		at := metav1.NewTime(report.SeenAt.UTC().Truncate(time.Second))
		is.LastSeenTime = &at // once: the report says it each time to the millisecond
	}
	return is
}

func describeAway(s v1alpha1.LeafStatus) string {
	text := s.Code
	if s.LastSeenTime != nil {
		text += ", last seen " + wire.FormatTime(s.LastSeenTime.Time)
	}
	if s.Problem != "" {
		text += " (" + s.Problem + ")"
	}
	return text
}
