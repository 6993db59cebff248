// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestMadeAnew: a watch that was interrupted tells of an object that was deleted and made anew as
// of one that has changed, though both have the generation 1.
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
