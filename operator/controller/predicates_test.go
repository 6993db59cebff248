// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestMadeAnew: a watch that was interrupted reports an object that was deleted and recreated as changed, though both have the generation
// 1.
func TestMadeAnew(t *testing.T) {
	feed := func(uid types.UID) *v1alpha1.Feed {
		return &v1alpha1.Feed{ObjectMeta: metav1.ObjectMeta{Name: "all", UID: uid, Generation: 1}}
	}
	if !specChanged.Update(event.UpdateEvent{ObjectOld: feed("1"), ObjectNew: feed("2")}) {
		t.Error("one that was made anew is passed over")
	}
	if specChanged.Update(event.UpdateEvent{ObjectOld: feed("1"), ObjectNew: feed("1")}) {
		t.Error("one that did not change is not passed over")
	}
}

// TestUntilStopped: what ends with the operator is no error; what takes too long, or fails, is one.
func TestUntilStopped(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	failing := untilStopped(reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, errors.New("no") }))
	for name, c := range map[string]struct {
		ctx  context.Context
		fail bool
	}{"running": {t.Context(), true}, "stopped": {stopped, false}, "late": {late, true}} {
		if _, err := failing.Reconcile(c.ctx, ctrl.Request{}); (err != nil) != c.fail {
			t.Errorf("%s: %v", name, err)
		}
	}
}
