// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// announcer reports changed conditions: as Kubernetes events, and on the Site's health subject.
type announcer struct {
	recorder recorder.EventRecorder
	links    *links
	log      *slog.Logger
	// unpublished counts changes that no bus took.
	unpublished prometheus.Counter
}

// announce is called after a status was written.
func (a *announcer) announce(p planned) {
	a.recreated(p)
	a.surged(p)
	a.levelChanged(p)
	for _, c := range plan.Changed(p.wasConds, p.isConds) {
		switch c.Type {
		case v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled:
			continue // Ready says the same
		}
		was := ""
		for _, old := range p.wasConds {
			if old.Type == c.Type {
				was = string(old.Status)
			}
		}
		if c.Type != v1alpha1.ConditionStreamsIntact { // an event for each stream says the same
			a.event(p, c, was)
		}
		if err := a.publish(p, c, was); err != nil {
			a.notPublished("the change of a condition", p, err)
		}
	}
}

// notPublished counts a change that no bus accepted.
func (a *announcer) notPublished(what string, p planned, err error) {
	a.unpublished.Inc()
	if !errors.Is(err, errNotConnected) {
		a.log.Warn(what+" could not be published", "kind", p.kind, "name", p.NamespacedName.String(), "error", err)
	}
}

// recreated emits an event for each stream that was deleted. Events of one reason and action are counted together, so the action names the
// stream.
func (a *announcer) recreated(p planned) {
	is, ofSite := p.is.(*v1alpha1.SiteStatus)
	if !ofSite {
		return
	}
	for _, s := range is.RecreatedStreams {
		told := slices.ContainsFunc(p.was.(*v1alpha1.SiteStatus).RecreatedStreams, func(was v1alpha1.RecreatedStream) bool {
			return was.Name == s.Name && was.RecreatedTime.Equal(&s.RecreatedTime)
		})
		if !told {
			a.recorder.Eventf(p.object, nil, corev1.EventTypeWarning, v1alpha1.ReasonRecreated, v1alpha1.ConditionStreamsIntact+"/"+s.Name,
				"somebody else than the operator has deleted %s; made anew at %s", s.Name, wire.FormatTime(s.RecreatedTime.Time))
		}
	}
}

// surgeStatuses returns the surge statuses of a Site; nil for another resource.
func surgeStatuses(p planned) (was, is *v1alpha1.SurgeStatus) {
	status, ofSite := p.is.(*v1alpha1.SiteStatus)
	if !ofSite {
		return nil, nil
	}
	return p.was.(*v1alpha1.SiteStatus).Surge, status.Surge
}

// surged emits events for floors that changed, and for a level that followed another. The Surging condition reports that a level began, or
// that none holds any more.
func (a *announcer) surged(p planned) {
	before, now := surgeStatuses(p)
	if was, is := floorsOf(before), floorsOf(now); was != is {
		a.recorder.Eventf(p.object, nil, corev1.EventTypeNormal, v1alpha1.ReasonFloorsChanged, v1alpha1.ConditionSurging+"/Floors", "floors are %s, and were %s", is, was)
	}
	if before != nil && now != nil && before.Level != "" && now.Level != "" && before.Level != now.Level {
		a.recorder.Eventf(p.object, nil, corev1.EventTypeNormal, v1alpha1.ReasonLevelChanged, v1alpha1.ConditionSurging+"/"+now.Level,
			"level %s follows level %s: %s", now.Level, before.Level, now.Message)
	}
}

func floorsOf(s *v1alpha1.SurgeStatus) string {
	if s == nil {
		return "none"
	}
	return cmp.Or(s.FloorSummary, "none")
}

// event: that something is good from the beginning is no event.
func (a *announcer) event(p planned, c metav1.Condition, was string) {
	kind := corev1.EventTypeNormal
	if worrying(c) {
		kind = corev1.EventTypeWarning
	} else if was == "" && c.Type != v1alpha1.ConditionReady {
		return
	}
	a.recorder.Eventf(p.object, nil, kind, c.Reason, c.Type, "%s is %s: %s", c.Type, c.Status, c.Message)
}

func worrying(c metav1.Condition) bool {
	switch c.Reason {
	case v1alpha1.ReasonNotObserving, v1alpha1.ReasonReconciling, v1alpha1.ReasonProgressing, v1alpha1.ReasonNoInstruments,
		v1alpha1.ReasonNotAccepted, v1alpha1.ReasonAwaitingData: // the Accepted condition reports that it is not accepted
		return false
	}
	if c.Type == v1alpha1.ConditionSurging {
		return c.Status == metav1.ConditionTrue
	}
	return c.Status == metav1.ConditionFalse || c.Type == v1alpha1.ConditionDeletionHeld && c.Status == metav1.ConditionTrue ||
		c.Type == v1alpha1.ConditionDataFlowing && c.Status != metav1.ConditionTrue
}

func (a *announcer) publish(p planned, c metav1.Condition, was string) error {
	if p.code == "" {
		return errNotConnected
	}
	change := wire.ConditionChange{
		Kind: p.kind, Namespace: p.Namespace, Name: p.Name,
		UID: string(p.object.GetUID()), Generation: c.ObservedGeneration,
		Condition: c.Type, Status: string(c.Status), Was: was, Reason: c.Reason, Message: c.Message,
		At: c.LastTransitionTime.UTC(),
	}
	data, err := wire.Encode(change)
	if err != nil {
		return err
	}
	m := nats.NewMsg(wire.HealthSubject(p.code, strings.ToLower(p.kind), p.Name))
	m.Data = data
	id := fmt.Sprintf("%s/%s/%d/%s/%s", p.object.GetUID(), c.Type, change.At.Unix(), c.Status, c.Reason)
	describe(m, id, wire.TypeCondition, p.code, p.Name, change.At)
	return a.links.publish(p.site, m)
}

// describe sets the headers of an event that the operator of a Site publishes.
func describe(m *nats.Msg, id, kind, code, subject string, at time.Time) {
	for header, value := range map[string]string{
		wire.HeaderID:          id,
		wire.HeaderMessageID:   id,
		wire.HeaderSpecVersion: wire.SpecVersion,
		wire.HeaderType:        kind,
		wire.HeaderSource:      wire.EventSource(code, "operator"),
		wire.HeaderSubject:     subject,
		wire.HeaderTime:        wire.FormatTime(at),
		wire.HeaderContentType: wire.ContentTypeJSON,
		wire.HeaderFormat:      fmt.Sprint(wire.Format),
	} {
		m.Header.Set(header, value)
	}
}
