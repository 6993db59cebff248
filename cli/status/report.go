// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/substorm/substorm/cli/damage"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// Report is what `substorm status` says.
type Report struct {
	// Fine is true if there are no problems.
	Fine        bool         `json:"fine"`
	Sites       []Site       `json:"sites"`
	Gateways    []Gateway    `json:"gateways"`
	FeedServers []FeedServer `json:"feedServers"`
	Instruments []Instrument `json:"instruments"`
	Feeds       []Feed       `json:"feeds"`
	Consumers   []Consumer   `json:"consumers"`
	Mirrors     []Mirror     `json:"mirrors"`
	Problems    []Problem    `json:"problems"`
	// Notes are conditions that are as someone chose them, and good to know.
	Notes []Problem `json:"notes,omitempty"`

	namespace string
	now       time.Time
}

// Site is one line about a Site.
type Site struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Code      string `json:"code"`
	// Ready, ObjectStore and JetStream are True, False or Unknown.
	Ready       metav1.ConditionStatus `json:"ready"`
	ObjectStore metav1.ConditionStatus `json:"objectStore"`
	JetStream   metav1.ConditionStatus `json:"jetStream"`
	Revision    int64                  `json:"registryRevision"`
	// Archive is what is known of damage to stored objects, and when the archive was last checked; nil until an archivist has reported.
	Archive *damage.Known `json:"archive,omitempty"`
	// FiguresStale is why what its instruments sent is as of their statuses, up to ten minutes
	// ago; empty where it is as of now.
	FiguresStale string `json:"figuresStale,omitempty"`
	// PulledBy are the readers that the Site waits for, and what each has.
	PulledBy []v1alpha1.PullerStatus `json:"pulledBy,omitempty"`
}

// Gateway is one line about a pool.
type Gateway struct {
	Namespace string                 `json:"namespace"`
	Name      string                 `json:"name"`
	Site      string                 `json:"site"`
	Ready     metav1.ConditionStatus `json:"ready"`
	PodsReady int32                  `json:"podsReady"`
	PodsAsked int32                  `json:"podsAsked"`
	Datapath  v1alpha1.Datapath      `json:"datapath,omitempty"`
	// Revision is the oldest registry revision that a ready pod runs, and Behind
	// by how many it is behind the Site's newest.
	Revision int64 `json:"registryRevision"`
	Behind   int64 `json:"behind"`
}

// Instrument is one line about an instrument.
type Instrument struct {
	Namespace string                   `json:"namespace"`
	Name      string                   `json:"name"`
	Site      string                   `json:"site"`
	Type      string                   `json:"type"`
	State     v1alpha1.InstrumentState `json:"state"`
	Ready     metav1.ConditionStatus   `json:"ready"`
	Flowing   metav1.ConditionStatus   `json:"flowing"`
	// Reason of Flowing.
	Reason           string       `json:"reason"`
	LastReceivedTime *metav1.Time `json:"lastReceivedTime,omitempty"`
	Objects          int64        `json:"objectsToday"`
	Datagrams        int64        `json:"datagramsToday"`
	Bytes            int64        `json:"bytesToday"`
	Addresses        []string     `json:"addresses"`
}

// Problem is a condition that is not as it should be.
type Problem struct {
	// Object as kind/name, Namespace where it lives.
	Object    string                 `json:"object"`
	Namespace string                 `json:"namespace"`
	Condition string                 `json:"condition"`
	Status    metav1.ConditionStatus `json:"status"`
	Reason    string                 `json:"reason"`
	// Message says what is wrong and what to do.
	Message string      `json:"message"`
	Since   metav1.Time `json:"since,omitzero"`
}

// Summarize makes the report. Namespace is the one that was asked for, empty for all.
func Summarize(all Resources, namespace string, now time.Time) Report {
	r := Report{namespace: namespace, now: now, Sites: []Site{}, Gateways: []Gateway{}, FeedServers: []FeedServer{}, Instruments: []Instrument{}, Feeds: []Feed{},
		Consumers: []Consumer{}, Mirrors: []Mirror{}, Problems: []Problem{}}
	revisions := map[string]int64{}
	for i := range all.Sites {
		s := &all.Sites[i]
		r.addSite(s)
		revisions[s.Namespace+"/"+s.Name] = s.Status.RegistryRevision
	}
	for i := range all.Gateways {
		g := &all.Gateways[i]
		r.addGateway(g, revisions[g.Namespace+"/"+g.Spec.SiteRef.Name])
	}
	for i := range all.FeedServers {
		r.addFeedServer(&all.FeedServers[i])
	}
	for i := range all.Instruments {
		r.addInstrument(&all.Instruments[i])
	}
	for i := range all.Feeds {
		r.addFeed(&all.Feeds[i])
	}
	for i := range all.Consumers {
		r.addConsumer(&all.Consumers[i])
	}
	for i := range all.Mirrors {
		r.addMirror(&all.Mirrors[i])
	}
	r.Fine = len(r.Problems) == 0 && len(r.Sites) > 0
	return r
}

// saysStale notes why figures of Sites, by namespace/name, are not as of now.
func (r *Report) saysStale(why map[string]error) {
	for i := range r.Sites {
		if err := why[r.Sites[i].Namespace+"/"+r.Sites[i].Name]; err != nil {
			r.Sites[i].FiguresStale = err.Error()
		}
	}
}

func (r *Report) addSite(s *v1alpha1.Site) {
	conditions := s.Status.Conditions
	r.Sites = append(r.Sites, Site{
		Namespace: s.Namespace, Name: s.Name, Code: s.Spec.Code, Revision: s.Status.RegistryRevision,
		Ready:       condition(conditions, v1alpha1.ConditionReady).Status,
		ObjectStore: condition(conditions, v1alpha1.ConditionObjectStoreReachable).Status,
		JetStream:   condition(conditions, v1alpha1.ConditionJetStreamReachable).Status,
		Archive:     known(s.Status.Archive),
		PulledBy:    s.Status.PulledBy,
	})
	r.problems("site", s, s.Status.ObservedGeneration, conditions, siteConditions)
}

func (r *Report) addGateway(g *v1alpha1.IngestGateway, newest int64) {
	line := Gateway{
		Namespace: g.Namespace, Name: g.Name, Site: g.Spec.SiteRef.Name, Datapath: g.Status.Datapath,
		Ready:     condition(g.Status.Conditions, v1alpha1.ConditionReady).Status,
		PodsReady: ptr.Deref(g.Status.ReadyReplicas, 0), PodsAsked: podsWanted(&g.Status.Autoscaling, ptr.Deref(g.Spec.Replicas, 1)), Revision: g.Status.RegistryRevision,
	}
	if line.PodsReady > 0 {
		line.Behind = max(0, newest-line.Revision)
	}
	r.Gateways = append(r.Gateways, line)
	r.problems("ingestgateway", g, g.Status.ObservedGeneration, g.Status.Conditions, gatewayConditions)
}

func (r *Report) addInstrument(i *v1alpha1.Instrument) {
	flowing := condition(i.Status.Conditions, v1alpha1.ConditionDataFlowing)
	line := Instrument{
		Namespace: i.Namespace, Name: i.Name, Site: i.Spec.SiteRef.Name, Type: i.Spec.Type, State: i.Spec.State,
		Ready: condition(i.Status.Conditions, v1alpha1.ConditionReady).Status, Flowing: flowing.Status, Reason: flowing.Reason,
		LastReceivedTime: i.Status.LastReceivedTime, Addresses: []string{},
	}
	if c := i.Status.ReceivedToday; c != nil {
		line.Objects, line.Datagrams, line.Bytes = c.ObjectCount, c.DatagramCount, c.Bytes
	}
	for _, listener := range i.Status.Listeners {
		for _, a := range listener.Addresses {
			line.Addresses = append(line.Addresses, fmt.Sprintf("%s %s", listener.Name, a.Address))
		}
	}
	r.Instruments = append(r.Instruments, line)
	r.problems("instrument", i, i.Status.ObservedGeneration, i.Status.Conditions, instrumentConditions)
}

// The conditions of each kind that must be True, the most telling ones first. Conditions that each resource of a kind must have: a
// condition that was never set has an unknown status.
var (
	siteConditions = []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionObjectStoreReachable,
		v1alpha1.ConditionJetStreamReachable, v1alpha1.ConditionReady}
	gatewayConditions    = []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady}
	instrumentConditions = []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady, v1alpha1.ConditionDataFlowing}
	feedConditions       = []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady}
)

// calm are reasons for which a condition that is not True is as it should be.
var calm = map[string]bool{v1alpha1.ReasonNotObserving: true, v1alpha1.ReasonRetired: true,
	v1alpha1.ReasonAwaitingData: true, v1alpha1.ReasonNoListeners: true, v1alpha1.ReasonNotAccepted: true, v1alpha1.ReasonIdle: true, v1alpha1.ReasonFloorDoesNotFit: true}

// adverse are conditions that are True where something is wrong; all others are True
// where all is well.
var adverse = map[string]bool{v1alpha1.ConditionSpoolStranded: true, v1alpha1.ConditionSpoolQuarantined: true, v1alpha1.ConditionObjectsUnreadable: true,
	v1alpha1.ConditionHardwareLimited: true, v1alpha1.ConditionGivingWay: true, v1alpha1.ConditionDeletionHeld: true,
	v1alpha1.ConditionFloorWithoutPool: true}

// noted are conditions that are as someone chose them. Reconciling and Stalled say what
// Ready says, and FeedServerAvailable what FeedServers say.
var (
	noted = map[string]metav1.ConditionStatus{v1alpha1.ConditionAcknowledgeLimited: metav1.ConditionTrue,
		v1alpha1.ConditionScaleDownHeld: metav1.ConditionTrue, v1alpha1.ConditionDurable: metav1.ConditionFalse,
		v1alpha1.ConditionInstrumentsSelected: metav1.ConditionFalse, v1alpha1.ConditionOriginWaits: metav1.ConditionFalse, v1alpha1.ConditionScalingLimited: metav1.ConditionTrue}
	implied = map[string]bool{v1alpha1.ConditionReconciling: true, v1alpha1.ConditionStalled: true, v1alpha1.ConditionFeedServerAvailable: true}
)

// problems takes what is not as it should be of all conditions of a resource, those it
// must have first.
func (r *Report) problems(kind string, o metav1.Object, observed int64, conditions []metav1.Condition, wanted []string) {
	object, namespace, before := kind+"/"+o.GetName(), o.GetNamespace(), len(r.Problems)
	unreadable := finding.Unreadable(o)
	if unreadable != "" { // its conditions are of an earlier generation, or cannot be read either
		r.Problems = append(r.Problems, problem(object, namespace, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonUnreadable,
			Message: fmt.Sprintf("this version cannot read it: %s: correct it, or use the version that it was written for", unreadable)}))
	}
	for _, kind := range wanted {
		c := condition(conditions, kind)
		if unreadable != "" && (kind == v1alpha1.ConditionAccepted || c.LastTransitionTime.IsZero()) {
			continue
		}
		if c.Status == metav1.ConditionTrue || calm[c.Reason] || kind == v1alpha1.ConditionReady && len(r.Problems) > before {
			continue
		}
		r.Problems = append(r.Problems, problem(object, namespace, c))
		if c.LastTransitionTime.IsZero() {
			return // no controller has processed it: one problem is enough
		}
	}
	// Programmed says why Ready is False.
	explained := func(kind string) bool { return kind == v1alpha1.ConditionProgrammed && len(r.Problems) > before }
	for _, c := range conditions {
		switch {
		case slices.Contains(wanted, c.Type) || implied[c.Type] || calm[c.Reason] || explained(c.Type):
		case noted[c.Type] != "" && c.Reason != v1alpha1.ReasonConfirmationRefused:
			if c.Status == noted[c.Type] || c.Type == v1alpha1.ConditionDurable && c.Status != metav1.ConditionTrue {
				r.Notes = append(r.Notes, problem(object, namespace, c))
			}
		case adverse[c.Type] && c.Status == metav1.ConditionTrue, !adverse[c.Type] && c.Status == metav1.ConditionFalse:
			r.Problems = append(r.Problems, problem(object, namespace, c))
		}
	}
	if observed != 0 && observed < o.GetGeneration() && len(r.Problems) == before {
		r.Problems = append(r.Problems, problem(object, namespace, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown,
			Reason: "NotObserved", Message: "the operator has not seen its last change yet: does it run?"}))
	}
}

// verdict is an error where not all is as it should be.
func (r *Report) verdict() error {
	switch {
	case r.Fine:
		return nil
	case len(r.Problems) == 0:
		return fmt.Errorf("%w: there is no Site", ErrProblems)
	default:
		return fmt.Errorf("%w: %d problems", ErrProblems, len(r.Problems))
	}
}

func problem(object, namespace string, c metav1.Condition) Problem {
	return Problem{Object: object, Namespace: namespace, Condition: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime}
}

// since says how long ago something was: 10 minutes.
func (r *Report) since(at *metav1.Time) string {
	return strings.TrimSpace(humanize.RelTime(at.Time, r.now, "", ""))
}

// Resources are what a Report is made of.
type Resources struct {
	Sites       []v1alpha1.Site
	Gateways    []v1alpha1.IngestGateway
	FeedServers []v1alpha1.FeedServer
	Instruments []v1alpha1.Instrument
	Feeds       []v1alpha1.Feed
	Consumers   []v1alpha1.FeedConsumer
	Mirrors     []v1alpha1.MirrorPartner
}

// Feed is a line of the Report.
type Feed struct {
	Namespace         string                 `json:"namespace"`
	Name              string                 `json:"name"`
	Site              string                 `json:"site"`
	Ready             metav1.ConditionStatus `json:"ready"`
	Instruments       int32                  `json:"instruments"`
	MessagesPerMinute int64                  `json:"messagesPerMinute"`
	Consumers         int32                  `json:"consumers"`
}

// Consumer is a FeedConsumer's line of the Report.
type Consumer struct {
	Namespace string                 `json:"namespace"`
	Name      string                 `json:"name"`
	Feed      string                 `json:"feed"`
	Delivery  v1alpha1.DeliveryType  `json:"delivery"`
	Ready     metav1.ConditionStatus `json:"ready"`
	// KeepingUp is the reason of that condition: Flowing, Slow, Overrun or Idle, or why it is unknown.
	KeepingUp   string `json:"keepingUp"`
	LagMessages int64  `json:"lagMessages"`
	LagSeconds  int64  `json:"lagSeconds"`
	Dropped     int64  `json:"dropped"`
	Gaps        int64  `json:"gaps"`
}

func (r *Report) addFeed(f *v1alpha1.Feed) {
	r.Feeds = append(r.Feeds, Feed{
		Namespace: f.Namespace, Name: f.Name, Site: f.Spec.SiteRef.Name, Ready: condition(f.Status.Conditions, v1alpha1.ConditionReady).Status,
		Instruments: ptr.Deref(f.Status.InstrumentCount, 0), MessagesPerMinute: ptr.Deref(f.Status.MessagesPerMinute, 0), Consumers: ptr.Deref(f.Status.ConsumerCount, 0),
	})
	r.problems("feed", f, f.Status.ObservedGeneration, f.Status.Conditions, feedConditions)
}

func (r *Report) addConsumer(c *v1alpha1.FeedConsumer) {
	line := Consumer{
		Namespace: c.Namespace, Name: c.Name, Feed: c.Spec.FeedRef.Name, Delivery: c.Spec.Delivery.Type, Gaps: ptr.Deref(c.Status.GapCount, 0),
		KeepingUp: condition(c.Status.Conditions, v1alpha1.ConditionKeepingUp).Reason,
		Ready:     condition(c.Status.Conditions, v1alpha1.ConditionReady).Status,
	}
	if lag := c.Status.Lag; lag != nil {
		line.LagMessages, line.LagSeconds = ptr.Deref(lag.MessageCount, 0), ptr.Deref(lag.Seconds, 0)
	}
	for _, d := range c.Status.Dropped {
		line.Dropped += d.Count
	}
	r.Consumers = append(r.Consumers, line)
	r.problems("feedconsumer", c, c.Status.ObservedGeneration, c.Status.Conditions, feedConditions)
}

func (r Report) printFeeds(w io.Writer) {
	if len(r.Feeds) == 0 {
		return
	}
	fmt.Fprintln(w, "FEED\tSITE\tREADY\tINSTRUMENTS\tMESSAGES/MIN\tCONSUMERS")
	for _, f := range r.Feeds {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\n", r.name(f.Namespace, f.Name), f.Site, f.Ready, f.Instruments, f.MessagesPerMinute, f.Consumers)
	}
}

func (r Report) printConsumers(w io.Writer) {
	if len(r.Consumers) == 0 {
		return
	}
	fmt.Fprintln(w, "CONSUMER\tFEED\tDELIVERY\tREADY\tKEEPING-UP\tLAG\tDROPPED\tGAPS")
	for _, c := range r.Consumers {
		lag := "-"
		if slices.Contains([]string{v1alpha1.ReasonFlowing, v1alpha1.ReasonSlow, v1alpha1.ReasonOverrun}, c.KeepingUp) {
			lag = fmt.Sprintf("%d messages, %d s", c.LagMessages, c.LagSeconds)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n", r.name(c.Namespace, c.Name), c.Feed, c.Delivery, c.Ready, c.KeepingUp, lag, c.Dropped, c.Gaps)
	}
}

// known is what a Site's status says of damage to its archive; nil if it has no such part.
func known(s *v1alpha1.ArchiveState) *damage.Known {
	if s == nil {
		return nil
	}
	return &damage.Known{Confirmed: int(s.DamagedCount), Missing: int(s.MissingCount), Unconfirmed: int(s.UnconfirmedCount), LastPass: scrubPass(s.LastPass), Pass: scrubPass(s.Pass)}
}

func scrubPass(p *v1alpha1.ArchivePass) *wire.ScrubPass {
	if p == nil {
		return nil
	}
	scrub := &wire.ScrubPass{BegunAt: p.StartTime.Time, Instrument: p.Instrument, Day: wire.Day(p.Day), Objects: uint64(p.ObjectCount), Unreadable: uint64(p.UnreadableDayCount)}
	if p.CompletionTime != nil {
		scrub.EndedAt = &p.CompletionTime.Time
	}
	return scrub
}

// printArchives reports what is known of damage in each Site's archive, and when it was last checked.
func (r Report) printArchives(w io.Writer) {
	for _, s := range r.Sites {
		says := "no archivist has reported yet that it reads it"
		if s.Archive != nil {
			says = s.Archive.String()
		}
		fmt.Fprintf(w, "Archive of site %s: %s.\n", r.name(s.Namespace, s.Name), says)
	}
}
