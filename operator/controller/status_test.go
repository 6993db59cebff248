// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// writerAt returns a writer of statuses whose clock the test moves.
func writerAt(now *time.Time) *statusWriter {
	return newStatusWriter(nil, 10, 1, slog.New(slog.DiscardHandler), func() time.Time { return *now }, func(planned) {})
}

func status(name string, urgency plan.Urgency, objects int64) planned {
	return planned{
		resource: resource{kindInstrument, types.NamespacedName{Namespace: "field", Name: name}},
		object:   &v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}},
		was:      &v1alpha1.InstrumentStatus{},
		is:       &v1alpha1.InstrumentStatus{ReceivedToday: &v1alpha1.DayCounts{ObjectCount: objects}},
		urgency:  urgency,
	}
}

// take takes everything that may be written now, and has it written.
func (w *statusWriter) take() (taken []string) {
	for {
		p, _ := w.next()
		if p == nil {
			return taken
		}
		w.mu.Lock()
		w.last[p.resource] = lastStatus{uid: p.object.GetUID(), status: p.is, at: w.now()}
		w.mu.Unlock()
		w.written(p.resource)
		taken = append(taken, fmt.Sprintf("%s:%d", p.Name, p.is.(*v1alpha1.InstrumentStatus).ReceivedToday.ObjectCount))
	}
}

func TestUrgentStatusesComeFirst(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	w := writerAt(&now)
	for i, p := range []planned{
		status("figures", plan.UrgencyFigures, 1), status("condition-1", plan.UrgencyCondition, 1), status("spec-1", plan.UrgencySpec, 1),
		status("condition-2", plan.UrgencyCondition, 1), status("spec-2", plan.UrgencySpec, 1),
		status("condition-1", plan.UrgencyCondition, 2), // newer, and keeps its place
	} {
		now = now.Add(time.Duration(i) * time.Millisecond)
		w.submit(p)
	}
	want := []string{"spec-1:1", "spec-2:1", "condition-1:2", "condition-2:1", "figures:1"}
	if diff := cmp.Diff(want, w.take()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestFiguresWaitUntilTheLastStatusIsOld(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	w := writerAt(&now)
	w.submit(status("camera", plan.UrgencyCondition, 1))
	w.take()
	w.submit(status("camera", plan.UrgencyFigures, 2))
	if taken := w.take(); taken != nil {
		t.Fatalf("written at once: %v", taken)
	}
	if _, wait := w.next(); wait != figuresAge {
		t.Errorf("to be looked at again in %v", wait)
	}
	// A change of more than figures does not wait, and takes the figures along.
	w.submit(status("camera", plan.UrgencyCondition, 3))
	if taken := w.take(); !slices.Equal(taken, []string{"camera:3"}) {
		t.Errorf("written: %v", taken)
	}
	w.submit(status("camera", plan.UrgencyFigures, 4))
	now = now.Add(figuresAge)
	if taken := w.take(); !slices.Equal(taken, []string{"camera:4"}) {
		t.Errorf("written after figuresAge: %v", taken)
	}
}

func TestDetailsWaitForAMinute(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	w := writerAt(&now)
	w.submit(status("camera", plan.UrgencyCondition, 1))
	w.take()
	w.submit(status("camera", plan.UrgencyDetail, 2))
	if _, wait := w.next(); wait != detailAge {
		t.Errorf("to be looked at again in %v", wait)
	}
	now = now.Add(detailAge)
	if taken := w.take(); !slices.Equal(taken, []string{"camera:2"}) {
		t.Errorf("written: %v", taken)
	}
}

func TestAStatusThatStandsCancelsWhatWasAsked(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	w := writerAt(&now)
	w.submit(status("camera", plan.UrgencyCondition, 1))
	same := status("camera", plan.UrgencyFigures, 1)
	same.was = same.is
	w.submit(same)
	if taken := w.take(); taken != nil {
		t.Errorf("written: %v", taken)
	}
}

func TestAFailedWriteGivesWayToANewerOne(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	w := writerAt(&now)
	w.submit(status("camera", plan.UrgencyCondition, 1))
	failed, _ := w.next()
	w.requeue(*failed)
	w.written(failed.resource)
	if taken := w.take(); taken != nil {
		t.Fatalf("tried again at once: %v", taken)
	}
	w.submit(status("camera", plan.UrgencyCondition, 2))
	w.requeue(*failed)
	now = now.Add(rewriteAfter)
	if taken := w.take(); !slices.Equal(taken, []string{"camera:2"}) {
		t.Errorf("written: %v", taken)
	}
}

// TestWhatShouldPassIsWrittenWhereItLasts: gateways follow the registry within moments,
// and a status that says that they have not yet is worth no write.
func TestWhatShouldPassIsWrittenWhereItLasts(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	w := writerAt(&now)
	passing := func(objects int64) planned {
		p := status("camera", plan.UrgencySpec, objects)
		p.passing = true
		return p
	}
	w.submit(status("camera", plan.UrgencyCondition, 0))
	w.take()
	w.submit(status("camera", plan.UrgencyFigures, 1)) // waits, and has no effect on what follows
	now = now.Add(time.Minute)
	w.submit(passing(1))
	if taken := w.take(); taken != nil {
		t.Fatalf("written at once: %v", taken)
	}
	now = now.Add(time.Second)
	w.submit(status("camera", plan.UrgencySpec, 2))
	if taken := w.take(); !slices.Equal(taken, []string{"camera:2"}) {
		t.Errorf("written once it passed: %v", taken)
	}
	w.submit(passing(3))
	now = now.Add(passesWithin - time.Second)
	w.submit(passing(4)) // does not start over
	now = now.Add(time.Second)
	if taken := w.take(); !slices.Equal(taken, []string{"camera:4"}) {
		t.Errorf("written since it lasts: %v", taken)
	}
}

func TestFiguresHaveABudgetOfTheirOwn(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	w := writerAt(&now)
	w.submit(status("camera-1", plan.UrgencyFigures, 1))
	w.submit(status("camera-2", plan.UrgencyFigures, 1))
	if taken := w.take(); len(taken) != 1 {
		t.Errorf("written at once: %v", taken)
	}
	w.submit(status("camera-3", plan.UrgencyCondition, 1))
	if taken := w.take(); !slices.Equal(taken, []string{"camera-3:1"}) {
		t.Errorf("figures hold back a condition: %v", taken)
	}
	now = now.Add(w.figuresPace)
	if taken := w.take(); len(taken) != 1 {
		t.Errorf("written after the pace of figures: %v", taken)
	}
}

// TestOneWriteOfAResourceAtATime: the newer status waits for the older one's answer.
func TestOneWriteOfAResourceAtATime(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	w := writerAt(&now)
	w.submit(status("camera", plan.UrgencyCondition, 1))
	first, _ := w.next()
	w.submit(status("camera", plan.UrgencyCondition, 2))
	if p, _ := w.next(); p != nil {
		t.Fatalf("two writes of %s at once", p.Name)
	}
	w.written(first.resource)
	if taken := w.take(); !slices.Equal(taken, []string{"camera:2"}) {
		t.Errorf("written: %v", taken)
	}
}

func TestTheCacheMayBeBehind(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	w := writerAt(&now)
	name := resource{kindInstrument, types.NamespacedName{Namespace: "field", Name: "camera"}}
	written := &v1alpha1.InstrumentStatus{ObservedGeneration: 2}
	w.last[name] = lastStatus{uid: "u", version: "11", status: written}
	for _, c := range []struct {
		uid, version string
		want         int64
	}{{"u", "10", 2}, {"u", "11", 1}, {"u", "12", 1}, {"another", "10", 1}} {
		inst := &v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{UID: types.UID(c.uid), ResourceVersion: c.version}}
		inst.Status.ObservedGeneration = 1
		restoreNewestStatus(w, name, inst, &inst.Status)
		if inst.Status.ObservedGeneration != c.want {
			t.Errorf("uid %s, version %s: the status of generation %d, not %d", c.uid, c.version, inst.Status.ObservedGeneration, c.want)
		}
	}
}
