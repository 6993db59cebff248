// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// Finding is what a check found: the status, reason and message of a condition.
type Finding struct {
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message"`
}

// OK says that the finding is what one hopes for.
func (f Finding) OK() bool { return f.Status == metav1.ConditionTrue }

func good(reason, message string) Finding { return Finding{metav1.ConditionTrue, reason, message} }

func bad(reason, message string) Finding { return Finding{metav1.ConditionFalse, reason, message} }

func unknown(reason, message string) Finding {
	return Finding{metav1.ConditionUnknown, reason, message}
}

// check looks for one thing, and returns false where it isn't there.
type check[In any] func(In) (Finding, bool)

// first returns what the first check of a chain finds, otherwise what holds
// when none does.
func first[In any](in In, chain []check[In], otherwise Finding) Finding {
	for _, look := range chain {
		if f, found := look(in); found {
			return f
		}
	}
	return otherwise
}

// patience is how long something that only a person can put right is
// Reconciling before it is Stalled. What is missing may come with the
// same `kubectl apply`, and Helm takes Stalled for the end.
const patience = 10 * time.Second

// hopeless are the reasons of Ready=False that time alone does not change.
var hopeless = []string{
	v1alpha1.ReasonConflict,
	v1alpha1.ReasonSiteNotFound,
	v1alpha1.ReasonLeafNotFound,
	v1alpha1.ReasonSiteNotReady,
	v1alpha1.ReasonGatewayNotFound,
	v1alpha1.ReasonGatewayAmbiguous,
	v1alpha1.ReasonSecretNotFound,
	v1alpha1.ReasonSecretIncomplete,
	v1alpha1.ReasonPortOutOfRange,
	v1alpha1.ReasonTLSNotConfigured,
	v1alpha1.ReasonInvalidSource,
	v1alpha1.ReasonAccessDenied,
	v1alpha1.ReasonApplyFailed,
	v1alpha1.ReasonImmutable,
	v1alpha1.ReasonInvalidSelector,
	v1alpha1.ReasonStreamRefused,
	v1alpha1.ReasonFeedNotFound,
	v1alpha1.ReasonFeedNotReady,
	v1alpha1.ReasonInvalidFlow,
	v1alpha1.ReasonForbidden,
	v1alpha1.ReasonNoAccountKey,
	v1alpha1.ReasonNoFeedServer,
	v1alpha1.ReasonNoAddress,
	v1alpha1.ReasonUnreadable,
	v1alpha1.ReasonInvalidSchedule,
	v1alpha1.ReasonUnknownTimeZone,
	v1alpha1.ReasonInvalidTemplate,
	v1alpha1.ReasonInstrumentNotFound,
	v1alpha1.ReasonInstrumentHasListeners,
}

// conditions collects the conditions of one object.
type conditions struct {
	now        time.Time
	generation int64
	was        []metav1.Condition
	is         []metav1.Condition
}

// set adds a condition; its transition time is kept where the status is the same.
func (c *conditions) set(kind string, f Finding) {
	since := metav1.NewTime(c.now.UTC().Truncate(time.Second))
	if old := condition(c.was, kind); old != nil && old.Status == f.Status {
		since = old.LastTransitionTime
	}
	c.add(kind, f, since)
}

func (c *conditions) add(kind string, f Finding, since metav1.Time) {
	c.is = append(c.is, metav1.Condition{
		Type: kind, Status: f.Status, Reason: f.Reason, Message: abridge(f.Message),
		ObservedGeneration: c.generation, LastTransitionTime: since,
	})
}

// longestMessage is more than anybody reads. The API server refuses a status with a message of more than 32768 characters,
// and what a message quotes, a label selector say, has no such bound.
const longestMessage = 4096

// abridge cuts a message that is too long.
func abridge(message string) string {
	if utf8.RuneCountInString(message) <= longestMessage {
		return message
	}
	return string([]rune(message)[:longestMessage-1]) + "…"
}

// finish adds Ready, and Reconciling or Stalled where it is not True (kstatus).
// It returns when patience ends, or 0.
func (c *conditions) finish(ready Finding) time.Duration {
	c.set(v1alpha1.ConditionReady, ready)
	wait := time.Duration(0)
	if !ready.OK() {
		wait = c.reconcilingOrStalled(ready)
	}
	slices.SortFunc(c.is, func(a, b metav1.Condition) int {
		switch {
		case a.Type == b.Type:
			return 0
		case a.Type == v1alpha1.ConditionReady, b.Type != v1alpha1.ConditionReady && a.Type < b.Type:
			return -1
		default:
			return 1
		}
	})
	return wait
}

func (c *conditions) reconcilingOrStalled(ready Finding) time.Duration {
	now := metav1.NewTime(c.now.UTC().Truncate(time.Second))
	f := good(ready.Reason, ready.Message)
	if !slices.Contains(hopeless, ready.Reason) {
		c.set(v1alpha1.ConditionReconciling, f)
		return 0
	}
	if old := condition(c.was, v1alpha1.ConditionStalled); c.same(old, ready) {
		c.add(v1alpha1.ConditionStalled, f, old.LastTransitionTime)
		return 0
	}
	since := now
	if old := condition(c.was, v1alpha1.ConditionReconciling); c.same(old, ready) {
		since = old.LastTransitionTime
	}
	if waited := c.now.Sub(since.Time); waited < patience {
		c.add(v1alpha1.ConditionReconciling, f, since)
		return patience - waited
	}
	c.add(v1alpha1.ConditionStalled, f, now)
	return 0
}

// same: an earlier condition speaks of the same cause and generation.
func (c *conditions) same(old *metav1.Condition, f Finding) bool {
	return old != nil && old.Reason == f.Reason && old.ObservedGeneration == c.generation
}

func condition(all []metav1.Condition, kind string) *metav1.Condition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}

// soonest returns the least of several waits that are greater than 0, or 0.
func soonest(waits ...time.Duration) time.Duration {
	least := time.Duration(0)
	for _, w := range waits {
		if w > 0 && (least == 0 || w < least) {
			least = w
		}
	}
	return least
}

func count(some, all int32) string { return fmt.Sprintf("%d of %d", some, all) }

// FindingOf returns what a condition says; nothing where there is none.
func FindingOf(all []metav1.Condition, kind string) Finding {
	if c := condition(all, kind); c != nil {
		return Finding{c.Status, c.Reason, c.Message}
	}
	return Finding{}
}
