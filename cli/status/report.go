// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// Report is what `substorm status` says.
type Report struct {
	// Fine is true where there are no problems.
	Fine        bool         `json:"fine"`
	Sites       []Site       `json:"sites"`
	Gateways    []Gateway    `json:"gateways"`
	Instruments []Instrument `json:"instruments"`
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
	// Why is the reason of Flowing.
	Why          string       `json:"why"`
	LastReceived *metav1.Time `json:"lastReceived,omitempty"`
	Objects      int64        `json:"objectsToday"`
	Datagrams    int64        `json:"datagramsToday"`
	Bytes        int64        `json:"bytesToday"`
	Addresses    []string     `json:"addresses"`
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
func Summarize(sites []v1alpha1.Site, gateways []v1alpha1.IngestGateway, instruments []v1alpha1.Instrument, namespace string, now time.Time) Report {
	r := Report{namespace: namespace, now: now, Sites: []Site{}, Gateways: []Gateway{}, Instruments: []Instrument{}, Problems: []Problem{}}
	revisions := map[string]int64{}
	for i := range sites {
		r.addSite(&sites[i])
		revisions[sites[i].Namespace+"/"+sites[i].Name] = sites[i].Status.RegistryRevision
	}
	for i := range gateways {
		r.addGateway(&gateways[i], revisions[gateways[i].Namespace+"/"+gateways[i].Spec.SiteRef.Name])
	}
	for i := range instruments {
		r.addInstrument(&instruments[i])
	}
	r.Fine = len(r.Problems) == 0 && len(r.Sites) > 0
	return r
}

func (r *Report) addSite(s *v1alpha1.Site) {
	conditions := s.Status.Conditions
	r.Sites = append(r.Sites, Site{
		Namespace: s.Namespace, Name: s.Name, Code: s.Spec.Code, Revision: s.Status.RegistryRevision,
		Ready:       condition(conditions, v1alpha1.ConditionReady).Status,
		ObjectStore: condition(conditions, v1alpha1.ConditionObjectStoreReachable).Status,
		JetStream:   condition(conditions, v1alpha1.ConditionJetStreamReachable).Status,
	})
	r.problems("site/"+s.Name, s.Namespace, s.Generation, s.Status.ObservedGeneration, conditions, siteConditions)
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionDurable); c != nil && c.Status != metav1.ConditionTrue {
		r.Notes = append(r.Notes, problem("site/"+s.Name, s.Namespace, *c))
	}
}

func (r *Report) addGateway(g *v1alpha1.IngestGateway, newest int64) {
	line := Gateway{
		Namespace: g.Namespace, Name: g.Name, Site: g.Spec.SiteRef.Name, Datapath: g.Status.Datapath,
		Ready:     condition(g.Status.Conditions, v1alpha1.ConditionReady).Status,
		PodsReady: g.Status.ReadyReplicas, PodsAsked: ptr.Deref(g.Spec.Replicas, 1), Revision: g.Status.RegistryRevision,
	}
	if line.PodsReady > 0 {
		line.Behind = max(0, newest-line.Revision)
	}
	r.Gateways = append(r.Gateways, line)
	r.problems("ingestgateway/"+g.Name, g.Namespace, g.Generation, g.Status.ObservedGeneration, g.Status.Conditions, gatewayConditions)
	if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionSpoolStranded); c != nil && c.Status == metav1.ConditionTrue {
		r.Problems = append(r.Problems, problem("ingestgateway/"+g.Name, g.Namespace, *c))
	}
}

func (r *Report) addInstrument(i *v1alpha1.Instrument) {
	flowing := condition(i.Status.Conditions, v1alpha1.ConditionDataFlowing)
	line := Instrument{
		Namespace: i.Namespace, Name: i.Name, Site: i.Spec.SiteRef.Name, Type: i.Spec.Type, State: i.Spec.State,
		Ready: condition(i.Status.Conditions, v1alpha1.ConditionReady).Status, Flowing: flowing.Status, Why: flowing.Reason,
		LastReceived: i.Status.LastReceived, Addresses: []string{},
	}
	if c := i.Status.ReceivedToday; c != nil {
		line.Objects, line.Datagrams, line.Bytes = c.Objects, c.Datagrams, c.Bytes
	}
	for _, a := range i.Status.Addresses {
		line.Addresses = append(line.Addresses, fmt.Sprintf("%s %s", a.Type, a.Address))
	}
	r.Instruments = append(r.Instruments, line)
	r.problems("instrument/"+i.Name, i.Namespace, i.Generation, i.Status.ObservedGeneration, i.Status.Conditions, instrumentConditions)
}

// The conditions of each kind that must be True, the most telling ones first.
var (
	siteConditions = []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionObjectStoreReachable,
		v1alpha1.ConditionJetStreamReachable, v1alpha1.ConditionReady}
	gatewayConditions    = []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady}
	instrumentConditions = []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady, v1alpha1.ConditionDataFlowing}
)

// calm are reasons for which a condition that is not True is no problem.
var calm = map[string]bool{v1alpha1.ReasonNotObserving: true, v1alpha1.ReasonRetired: true,
	v1alpha1.ReasonAwaitingData: true, v1alpha1.ReasonNotAccepted: true}

// problems notes the conditions of an object that are not True. Ready only says
// what an earlier one said already, so it is named where none of them is.
func (r *Report) problems(object, namespace string, generation, observed int64, conditions []metav1.Condition, wanted []string) {
	before := len(r.Problems)
	for _, kind := range wanted {
		c := condition(conditions, kind)
		if c.Status == metav1.ConditionTrue || calm[c.Reason] || kind == v1alpha1.ConditionReady && len(r.Problems) > before {
			continue
		}
		r.Problems = append(r.Problems, problem(object, namespace, c))
		if c.LastTransitionTime.IsZero() {
			return // nobody has looked at it: once is enough
		}
	}
	if observed != 0 && observed < generation && len(r.Problems) == before {
		r.Problems = append(r.Problems, problem(object, namespace, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown,
			Reason: "NotObserved", Message: "the operator has not seen its last change yet: does it run?"}))
	}
}

func problem(object, namespace string, c metav1.Condition) Problem {
	return Problem{Object: object, Namespace: namespace, Condition: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime}
}

// since says how long ago something was: 10 minutes.
func (r *Report) since(at *metav1.Time) string {
	return strings.TrimSpace(humanize.RelTime(at.Time, r.now, "", ""))
}
