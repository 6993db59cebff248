// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/plan/workload"
)

// LeafReport is our NATS server's report of a leaf's two base streams, and of their copies on the way to ours.
type LeafReport struct {
	// At is when it was asked.
	At time.Time `json:"at"`
	// SeenAt is when the stream that was heard less recently was last heard; zero: not since our server began.
	SeenAt time.Time `json:"seenAt,omitzero"`
	// Lag in messages that the leaf or a copy holds and our streams don't.
	Lag uint64 `json:"lag"`
	// Problem is the failure that our server reports.
	Problem string `json:"problem,omitempty"`
}

// Connected returns whether both streams were heard lately.
func (r LeafReport) Connected() bool { return !r.SeenAt.IsZero() && r.At.Sub(r.SeenAt) <= leafPatience }

// leaves sums up the state of the leaves; nil if the Site has none. Jetstream says whether our own server answers.
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
		is.Link, is.LastSeenTime, is.LagMessageCount = v1alpha1.LeafConnected, observed.Rounded(report.SeenAt), new(int64(report.Lag))
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

// leavesHaveNoAccountKey: leaves of a Site whose operator issues users need an account.
func (v SiteView) leavesHaveNoAccountKey() (finding.Finding, bool) {
	js := &v.Site.Spec.JetStream
	if js.AccountKeySecretRef == nil || js.LeafAccountKeySecretRef != nil {
		return finding.Finding{}, false
	}
	return finding.Bad(v1alpha1.ReasonNoAccountKey, fmt.Sprintf(
		"the servers of leaves link into a NATS account of their own, and nothing is taken from the %d leaves without it: "+
			"make the account (docs/how-to/nats-accounts.md says how) and set spec.jetStream.leafAccountKeySecretRef", len(v.Site.Spec.Leaves))), true
}

// leafPatience is how long a leaf may be unheard and still count as connected. A server whose link works and that has nothing to send sends
// a heartbeat each second, and is asked again after ten.
const leafPatience = 30 * time.Second
