// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan"
)

// What is closed goes, by the hub's name or the leaf's; gap records and what others'
// streams hold stay.
func TestClosed(t *testing.T) {
	const of = "live.hub.display."
	subjects := []string{
		of + "obs.hub.mag.raw", of + "notice.hub.camera", of + "notice.hub.mag", of + "obs.hub.camera.raw", of + "gap.hub.display",
		of + "notice.north.camera", of + "obs.north.mag.raw", of + "notice.south.mag", "live.hub.other.notice.hub.camera",
	}
	want := []string{of + "notice.hub.camera", of + "notice.south.mag", of + "obs.hub.camera.raw"}
	if diff := cmp.Diff(want, plan.Closed("hub", "display", subjects, []string{"mag", wire.LeafInstruments("north")})); diff != "" {
		t.Errorf("closed (-want +is):\n%s", diff)
	}
	narrowed := plan.Narrow("hub", []string{"notice.hub.camera", "notice.north.>", "obs.north.*.>", "obs.south.*.>", "gap.hub.display"},
		[]string{"mag", wire.LeafInstruments("north")})
	if diff := cmp.Diff([]string{"notice.north.>", "obs.north.*.>", "gap.hub.display"}, narrowed); diff != "" {
		t.Errorf("narrowed (-want +is):\n%s", diff)
	}
}
