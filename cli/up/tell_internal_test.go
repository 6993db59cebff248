// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestTellListener: an address at which nothing is received is not shown as one that receives.
func TestTellListener(t *testing.T) {
	const inUse = "TCP port 30101 cannot be opened: address already in use"
	for status, want := range map[metav1.ConditionStatus]string{
		metav1.ConditionTrue:  "  receives     127.0.0.1:30101 of camera\n",
		metav1.ConditionFalse: "  not open     127.0.0.1:30101 of camera: " + inUse + "\n",
	} {
		var out strings.Builder
		tellListener(&out, "camera", v1alpha1.ListenerStatus{
			Addresses:  []v1alpha1.ListenerAddress{{Address: "127.0.0.1:30101"}},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionProgrammed, Status: status, Message: inUse}},
		})
		if out.String() != want {
			t.Errorf("Programmed %s: %q, want %q", status, out.String(), want)
		}
	}
}

// TestLacksAddress: an Instrument is reported once each of its listeners has an address, or a reason why it has none.
func TestLacksAddress(t *testing.T) {
	failed := v1alpha1.ListenerStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionProgrammed, Status: metav1.ConditionFalse}}}
	told := v1alpha1.ListenerStatus{Addresses: []v1alpha1.ListenerAddress{{Address: "127.0.0.1:30101"}}}
	for name, c := range map[string]struct {
		listeners []v1alpha1.ListenerStatus
		want      bool
	}{
		"no status": {nil, true}, "no address": {[]v1alpha1.ListenerStatus{{}, told}, true}, "one listener": {[]v1alpha1.ListenerStatus{told}, true},
		"told": {[]v1alpha1.ListenerStatus{told, told}, false}, "failed": {[]v1alpha1.ListenerStatus{told, failed}, false},
	} {
		i := v1alpha1.Instrument{Spec: v1alpha1.InstrumentSpec{Listeners: make([]v1alpha1.Listener, 2)}, Status: v1alpha1.InstrumentStatus{Listeners: c.listeners}}
		if got := lacksAddress(i); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
