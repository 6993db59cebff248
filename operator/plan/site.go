// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/natsaccounts"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/plan/workload"
)

// Backends are the findings about a Site's backends when they were last tried; nil if they were not tried yet.
type Backends struct {
	ObjectStore *finding.Finding `json:"objectStore,omitempty"`
	JetStream   *finding.Finding `json:"jetStream,omitempty"`
	// Leaves by code, as far as JetStream spoke of them.
	Leaves map[string]LeafReport `json:"leaves,omitempty"`
	// LeavesAccount is what is wrong with the account of leaves; nil if nothing is.
	LeavesAccount *finding.Finding `json:"leavesAccount,omitempty"`
	// Standing streams, those of buckets included; nil until all of them exist.
	Standing []string `json:"standing,omitempty"`
	// Recreated streams, by name, those of buckets included: they existed, were gone, and were recreated at a time.
	Recreated map[string]time.Time `json:"recreated,omitempty"`
}

// SiteView is everything that a Site's status is made from.
type SiteView struct {
	Now  time.Time
	Site *v1alpha1.Site
	// Sites are all that the operator sees.
	Sites    []v1alpha1.Site
	Secrets  workload.Secrets
	Backends Backends
	// Flowing is the DataFlowing of each of the Site's instruments, by name;
	// Counted says that none is missing.
	Flowing map[string]finding.Finding
	Counted bool
	// LeafFailed is why the credentials of a leaf cannot be issued.
	LeafFailed *finding.Finding
	// Link is the state of the link to the hub of a Site without a cluster, as the server in this process reports it; nil if it was not
	// asked.
	Link *natsaccounts.LinkState
	// Disk is how much of the disk the process uses that runs a Site without a cluster; nil on a cluster.
	Disk *Disk
	// Manifests is what the process that runs a Site without a cluster could not apply of its files; nil on a cluster.
	Manifests *Manifests
	Registry  observed.RegistryState
	// Archivist has the findings about the Site's archivist.
	Archivist SiteProgramView
	// Weather is what the sources of space weather reported; nil if none is declared.
	Weather *Weather
	// Gateways and FeedServers are the ones that name the Site.
	Gateways    []v1alpha1.IngestGateway
	FeedServers []v1alpha1.FeedServer
	// Unreadable are the Site's objects that cannot be decoded.
	Unreadable []entries.UnreadableObject
	// Deletion is how to treat the Site's finalizer.
	Deletion Deletion
	// Ledger is the archivist's last report of the ledger; nil if there is none yet.
	Ledger *wire.LedgerStatus
	// Expiry is the archivist's last report of what keeps data from expiring; nil if there is none yet.
	Expiry *wire.ExpiryStatus
	// Pullers are the reports of readers that pull about their last runs, by reader.
	Pullers map[string]wire.PullerStatus
	// Scrub is the archivist's last report of reading the archive; nil if there is none yet. Damage counts what is known to be damaged.
	Scrub  *wire.ScrubStatus
	Damage DamageCounts
}

// SiteAccepted says whether the Site's code is its own.
func SiteAccepted(v SiteView) finding.Finding {
	return finding.First(v, []finding.Check[SiteView]{
		codeIsAnOlderSites,
		markerIsAnotherSites,
	}, finding.Good(v1alpha1.ReasonAccepted, fmt.Sprintf("code %q is this Site's", v.Site.Spec.Code)))
}

func codeIsAnOlderSites(v SiteView) (finding.Finding, bool) {
	for i := range v.Sites {
		other := &v.Sites[i]
		if other.UID == v.Site.UID || other.Spec.Code != v.Site.Spec.Code || accept.OlderFirst(v.Site, other) < 0 {
			continue
		}
		return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
			"code %q is claimed by the older Site %s/%s: delete one of the two, and make it anew with another spec.code",
			v.Site.Spec.Code, other.Namespace, other.Name)), true
	}
	return finding.Finding{}, false
}

// ClaimantsOf are the other Sites that claim a Site's code, and whose acceptance so depends on it.
func ClaimantsOf(site *v1alpha1.Site, all []v1alpha1.Site) (others []types.NamespacedName) {
	for i := range all {
		if other := &all[i]; other.Spec.Code == site.Spec.Code && (other.Namespace != site.Namespace || other.Name != site.Name) {
			others = append(others, types.NamespacedName{Namespace: other.Namespace, Name: other.Name})
		}
	}
	return others
}

func markerIsAnotherSites(v SiteView) (finding.Finding, bool) {
	for _, f := range []*finding.Finding{v.Backends.ObjectStore, v.Backends.JetStream} {
		if f != nil && f.Reason == v1alpha1.ReasonConflict {
			return *f, true
		}
	}
	return finding.Finding{}, false
}

// setDeclared sets the conditions about declarations in manifests.
func (v SiteView) setDeclared(c *finding.Conditions) {
	if f, found := accept.ReadersUndeclared(v.Site, v.Secrets); found {
		c.Set(v1alpha1.ConditionReadersDeclared, f)
	}
	if f, found := v.manifestsApplied(); found {
		c.Set(v1alpha1.ConditionManifestsApplied, f)
	}
}

// SiteStatus returns the status, and after how long to look again.
func SiteStatus(v SiteView) (v1alpha1.SiteStatus, time.Duration) {
	accepted := SiteAccepted(v)
	store := v.reachable(accepted, workload.ObjectStoreSecrets(v.Site), v.Backends.ObjectStore, v1alpha1.ConditionObjectStoreReachable, "the object store")
	jetStream := v.reachable(accepted, workload.JetStreamSecrets(v.Site), v.Backends.JetStream, v1alpha1.ConditionJetStreamReachable, "JetStream")
	counts, flowing := v.flowing()
	if was := finding.Condition(v.Site.Status.Conditions, v1alpha1.ConditionDataFlowing); !v.Counted && was != nil {
		flowing = finding.From(was)
		counts = *cmp.Or(v.Site.Status.InstrumentSummary, &counts)
	}

	c := finding.Conditions{Now: v.Now, Generation: v.Site.Generation, Old: v.Site.Status.Conditions}
	c.Set(v1alpha1.ConditionAccepted, accepted)
	c.Set(v1alpha1.ConditionObjectStoreReachable, store)
	c.Set(v1alpha1.ConditionJetStreamReachable, jetStream)
	c.Set(v1alpha1.ConditionDurable, durable(v.Site))
	c.Set(v1alpha1.ConditionDataFlowing, flowing)
	leaves, reachable := v.leaves(jetStream)
	if reachable != nil {
		c.Set(v1alpha1.ConditionLeavesReachable, *reachable)
	}
	if f, has := v.upstream(accepted); has {
		c.Set(v1alpha1.ConditionUpstreamReachable, f)
	}
	if f, has := v.spaceLeft(); has {
		c.Set(v1alpha1.ConditionSpaceLeft, f)
	}
	archivist := v.archivistAvailable()
	c.Set(v1alpha1.ConditionArchivistAvailable, archivist)
	findings := []finding.Finding{accepted, store, jetStream, archivist}
	if f, has := v.feedServersAvailable(); has {
		c.Set(v1alpha1.ConditionFeedServerAvailable, f)
	}
	if held := v.Deletion.Held; held != nil {
		c.Set(v1alpha1.ConditionDeletionHeld, *held)
	}
	if f, found := notApplied(v.Site); found {
		c.Set(v1alpha1.ConditionNotApplied, f)
	}
	if f, found := v.unreadable(); found {
		c.Set(v1alpha1.ConditionObjectsUnreadable, f)
	}
	if f, found := v.streamsRecreated(); found {
		c.Set(v1alpha1.ConditionStreamsIntact, f)
	}
	if f, found := v.expiryStopped(); found {
		c.Set(v1alpha1.ConditionExpiryRunning, f)
	}
	if f, found := accept.ReadersProblem(v.Site, v.Secrets); found {
		findings = append(findings, f)
	}
	v.setDeclared(&c)
	if f, found := v.readersHaveNoAuthority(); found {
		findings = append(findings, f)
	}
	surge, changes := v.surge(&c)
	ready := finding.Good(v1alpha1.ReasonReady, "object store and JetStream are reachable, and the streams stand")
	for _, f := range findings {
		if !f.OK() {
			ready = f
			break
		}
	}
	patienceEnds := c.Finish(ready)
	return v1alpha1.SiteStatus{
		ObservedGeneration: v.Site.Generation,
		Conditions:         c.All,
		InstrumentSummary:  &counts,
		JetStream:          v.standing(),
		RecreatedStreams:   v.recreated(),
		RegistryRevision:   max(v.Registry.Revision, v.Site.Status.RegistryRevision),
		Leaves:             leaves,
		PulledBy:           v.pulledBy(),
		Archivist:          v.archivistState(),
		Ledger:             v.ledger(),
		Archive:            v.archive(),
		Disk:               v.disk(),
		Surge:              surge,
	}, finding.Soonest(patienceEnds, changes, v.Deletion.Wait, v.Archivist.Credentials.RenewsIn(v.Now), v.looksAgain())
}

// looksAgain is after how long the Site is looked at without an event.
func (v SiteView) looksAgain() time.Duration {
	switch {
	case v.Link != nil:
		return linkEvery
	case v.Disk != nil:
		return diskEvery
	}
	return observed.FiguresEvery
}

// ledger is how far the ledger is closed: the current status, until the archivist has reported.
func (v SiteView) ledger() *v1alpha1.LedgerState {
	if v.Ledger == nil {
		return v.Site.Status.Ledger
	}
	s := &v1alpha1.LedgerState{ClosedTo: string(v.Ledger.ClosedTo), WaitsFor: v.Ledger.WaitsFor[:min(len(v.Ledger.WaitsFor), maxWaitsFor)]}
	for _, day := range v.Ledger.Reopened[:min(len(v.Ledger.Reopened), wire.MaxReopened)] {
		s.Reopened = append(s.Reopened, string(day))
	}
	return s
}

// maxWaitsFor is how long status.ledger.waitsFor may be, in bytes.
const maxWaitsFor = 1024

func (v SiteView) reachable(accepted finding.Finding, needs []workload.SecretNeed, tried *finding.Finding, kind, what string) finding.Finding {
	was := finding.Condition(v.Site.Status.Conditions, kind)
	return finding.First(v, []finding.Check[SiteView]{
		func(SiteView) (finding.Finding, bool) { return v.Secrets.Missing(needs) },
		func(SiteView) (finding.Finding, bool) {
			return finding.Unknown(v1alpha1.ReasonNotTried, what+" is left alone until the Site is accepted"), !accepted.OK()
		},
		func(SiteView) (finding.Finding, bool) { // an operator that starts knows nothing new
			if tried != nil || was == nil || was.ObservedGeneration != v.Site.Generation || was.Reason == v1alpha1.ReasonNotTried {
				return finding.Finding{}, false
			}
			return finding.From(was), true
		},
		func(SiteView) (finding.Finding, bool) {
			return finding.Unknown(v1alpha1.ReasonReconciling, what+" is being tried"), tried == nil
		},
		func(SiteView) (finding.Finding, bool) { return *tried, !tried.OK() },
	}, finding.Good(v1alpha1.ReasonReachable, what+" answers and does what is needed"))
}

func durable(site *v1alpha1.Site) finding.Finding {
	switch site.Spec.JetStream.Durability {
	case v1alpha1.DurabilitySynced:
		return finding.Good(v1alpha1.ReasonSynced, "spec.jetStream.durability says that JetStream acknowledges after fsync")
	case v1alpha1.DurabilityFlushed:
		return finding.Bad(v1alpha1.ReasonFlushed,
			"a power cut may take the last minutes that JetStream acknowledged: set sync_interval: always on the servers, and spec.jetStream.durability: Synced")
	default:
		return finding.Unknown(v1alpha1.ReasonDurabilityUnknown,
			"spec.jetStream.durability does not say what an acknowledgement is worth: with sync_interval: always on the servers set Synced, else Flushed")
	}
}

// flowing sums up the instruments.
func (v SiteView) flowing() (v1alpha1.InstrumentSummary, finding.Finding) {
	counts := v1alpha1.InstrumentSummary{TotalCount: int32(len(v.Flowing))}
	var silent, dark, awaited []string
	overdue := false
	for name, f := range v.Flowing {
		switch {
		case f.OK():
			counts.FlowingCount++
		case f.Status == metav1.ConditionFalse && f.Reason != v1alpha1.ReasonNotObserving:
			silent = append(silent, name)
			overdue = overdue || f.Reason == v1alpha1.ReasonOverdue
		case f.Reason == v1alpha1.ReasonAwaitingData:
			awaited = append(awaited, name)
		case f.Status != metav1.ConditionFalse && f.Reason != v1alpha1.ReasonNotAccepted && f.Reason != v1alpha1.ReasonNoListeners:
			dark = append(dark, name)
		}
	}
	counts.SilentCount = int32(len(silent))
	slices.Sort(silent)
	slices.Sort(dark)
	slices.Sort(awaited)
	due := int(counts.FlowingCount) + len(silent) + len(dark) + len(awaited)
	switch {
	case due == 0:
		return counts, finding.Unknown(v1alpha1.ReasonNoInstruments, "no Instrument of this Site should send data now")
	case len(silent) > 0:
		reason := v1alpha1.ReasonNeverSeen
		if overdue {
			reason = v1alpha1.ReasonOverdue
		}
		return counts, finding.Bad(reason, fmt.Sprintf("%d of %d instruments are silent: %s", len(silent), due, finding.List(silent)))
	case len(dark) > 0:
		return counts, finding.Unknown(v1alpha1.ReasonNoReport, fmt.Sprintf(
			"no gateway reports about %d of %d instruments: %s", len(dark), due, finding.List(dark)))
	case len(awaited) > 0:
		return counts, finding.Unknown(v1alpha1.ReasonAwaitingData, fmt.Sprintf(
			"%d of %d instruments are new and have sent nothing yet: %s", len(awaited), due, finding.List(awaited)))
	default:
		return counts, finding.Good(v1alpha1.ReasonFlowing, fmt.Sprintf("data of all %d instruments arrives in cadence", due))
	}
}
