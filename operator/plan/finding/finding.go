// SPDX-License-Identifier: Apache-2.0

// Package finding has the findings of planners about an object, and the conditions of its status that result.
package finding

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// Finding is the result of a check: the status, reason and message of a condition.
type Finding struct {
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message"`
}

// OK returns whether the finding is the desired one.
func (f Finding) OK() bool { return f.Status == metav1.ConditionTrue }

// Good returns the finding of a condition that is True.
func Good(reason, message string) Finding { return Finding{metav1.ConditionTrue, reason, message} }

// Bad returns a finding that is False.
func Bad(reason, message string) Finding { return Finding{metav1.ConditionFalse, reason, message} }

// Unknown returns a finding that is Unknown.
func Unknown(reason, message string) Finding {
	return Finding{metav1.ConditionUnknown, reason, message}
}

// Check looks for one problem, and returns false if there is none.
type Check[In any] func(In) (Finding, bool)

// First returns the finding of the first check of a chain that has one, else otherwise.
func First[In any](in In, chain []Check[In], otherwise Finding) Finding {
	for _, look := range chain {
		if f, found := look(in); found {
			return f
		}
	}
	return otherwise
}

// patience is how long something that only a person can put right is Reconciling before it is
// Stalled. A missing object may come with the same `kubectl apply`, and Helm treats Stalled as
// final.
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

// Conditions collects the conditions of one object.
type Conditions struct {
	Now time.Time
	// Generation is the generation of the object that the findings are about.
	Generation int64
	// Old are the conditions that the object has, and All those that it gets.
	Old, All []metav1.Condition
}

// Set adds a condition; its transition time is kept where the status is the same.
func (c *Conditions) Set(kind string, f Finding) {
	since := metav1.NewTime(c.Now.UTC().Truncate(time.Second))
	if old := Condition(c.Old, kind); old != nil && old.Status == f.Status {
		since = old.LastTransitionTime
	}
	c.add(kind, f, since)
}

func (c *Conditions) add(kind string, f Finding, since metav1.Time) {
	c.All = append(c.All, metav1.Condition{
		Type: kind, Status: f.Status, Reason: f.Reason, Message: Abridge(f.Message),
		ObservedGeneration: c.Generation, LastTransitionTime: since,
	})
}

// longestMessage is longer than a message should be. The API server refuses a status with a message of more than 32768 characters, and
// values that a message quotes, such as a label selector, have no such bound.
const longestMessage = 4096

// Abridge cuts a message that is too long.
func Abridge(message string) string {
	if utf8.RuneCountInString(message) <= longestMessage {
		return message
	}
	return string([]rune(message)[:longestMessage-1]) + "…"
}

// Finish adds Ready, and Reconciling or Stalled where it is not True (kstatus).
// It returns when patience ends, or 0.
func (c *Conditions) Finish(ready Finding) time.Duration {
	c.Set(v1alpha1.ConditionReady, ready)
	wait := time.Duration(0)
	if !ready.OK() {
		wait = c.reconcilingOrStalled(ready)
	}
	slices.SortFunc(c.All, func(a, b metav1.Condition) int {
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

func (c *Conditions) reconcilingOrStalled(ready Finding) time.Duration {
	now := metav1.NewTime(c.Now.UTC().Truncate(time.Second))
	f := Good(ready.Reason, ready.Message)
	if !slices.Contains(hopeless, ready.Reason) {
		c.Set(v1alpha1.ConditionReconciling, f)
		return 0
	}
	if old := Condition(c.Old, v1alpha1.ConditionStalled); c.same(old, ready) {
		c.add(v1alpha1.ConditionStalled, f, old.LastTransitionTime)
		return 0
	}
	since := now
	if old := Condition(c.Old, v1alpha1.ConditionReconciling); c.same(old, ready) {
		since = old.LastTransitionTime
	}
	if waited := c.Now.Sub(since.Time); waited < patience {
		c.add(v1alpha1.ConditionReconciling, f, since)
		return patience - waited
	}
	c.add(v1alpha1.ConditionStalled, f, now)
	return 0
}

// same: an earlier condition has the same cause and generation.
func (c *Conditions) same(old *metav1.Condition, f Finding) bool {
	return old != nil && old.Reason == f.Reason && old.ObservedGeneration == c.Generation
}

// Condition returns the condition of a type; nil if there is none.
func Condition(all []metav1.Condition, kind string) *metav1.Condition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}

// Soonest returns the least of several waits that are greater than 0, or 0.
func Soonest(waits ...time.Duration) time.Duration {
	least := time.Duration(0)
	for _, w := range waits {
		if w > 0 && (least == 0 || w < least) {
			least = w
		}
	}
	return least
}

// Count says how many of all there are.
func Count(some, all int32) string { return fmt.Sprintf("%d of %d", some, all) }

// From returns the finding in a condition.
func From(c *metav1.Condition) Finding { return Finding{c.Status, c.Reason, c.Message} }

// Of returns the finding of the condition of a type; the zero value if there is none.
func Of(all []metav1.Condition, kind string) Finding {
	if c := Condition(all, kind); c != nil {
		return From(c)
	}
	return Finding{}
}
