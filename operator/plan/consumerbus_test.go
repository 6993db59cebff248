// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/bus"
)

// Messages of closed instruments are removed, whether they have the hub's name or the leaf's;
// gap records and what others' streams hold stay.
func TestClosed(t *testing.T) {
	const of = "live.hub.display."
	subjects := []string{
		of + "obs.hub.mag.raw", of + "notice.hub.camera", of + "notice.hub.mag", of + "obs.hub.camera.raw", of + "gap.hub.display",
		of + "notice.north.camera", of + "obs.north.mag.raw", of + "notice.south.mag", "live.hub.other.notice.hub.camera",
	}
	want := []string{of + "notice.hub.camera", of + "notice.south.mag", of + "obs.hub.camera.raw"}
	if diff := cmp.Diff(want, bus.Closed("hub", "display", subjects, []string{"mag", wire.LeafInstruments("north")})); diff != "" {
		t.Errorf("closed (-want +is):\n%s", diff)
	}
	narrowed := bus.Narrow("hub", []string{"notice.hub.camera", "notice.north.>", "obs.north.*.>", "obs.south.*.>", "gap.hub.display"},
		[]string{"mag", wire.LeafInstruments("north")})
	if diff := cmp.Diff([]string{"notice.north.>", "obs.north.*.>", "gap.hub.display"}, narrowed); diff != "" {
		t.Errorf("narrowed (-want +is):\n%s", diff)
	}
}

// A wildcard is narrowed to the names that are left; who may read everything keeps it.
func TestNarrowWildcards(t *testing.T) {
	t.Parallel()
	wild := []string{"gap.hub.display", "notice.hub.*", "notice.hub.*.backfill", "obs.hub.*.>", "obs.hub.*.raw", "obs.north.*.>"}
	for _, c := range []struct{ may, want []string }{
		{[]string{wire.AllInstruments, wire.LeafInstruments("north")}, wild},
		{[]string{wire.AllInstruments}, wild[:5]},
		{[]string{"mag", wire.LeafInstruments("north")}, []string{"gap.hub.display", "notice.hub.mag", "notice.hub.mag.backfill", "obs.hub.mag.>", "obs.hub.mag.raw", "obs.north.*.>"}},
		{nil, []string{"gap.hub.display"}},
	} {
		if diff := cmp.Diff(c.want, bus.Narrow("hub", wild, c.may)); diff != "" {
			t.Errorf("%q (-want +is):\n%s", c.may, diff)
		}
	}
	if got := bus.Narrow("hub", []string{"obs.hub.*.>"}, nil); !slices.Equal(got, []string{wire.NoObservations("hub")}) {
		t.Errorf("nothing is left: %q", got)
	}
	const of = "live.hub.display."
	if got := bus.Closed("hub", "display", []string{of + "obs.hub.mag.raw", of + "obs.north.mag.raw"}, []string{wire.AllInstruments}); !slices.Equal(got, []string{of + "obs.north.mag.raw"}) {
		t.Errorf("closed: %q", got)
	}
}

func TestWider(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		has, wanted []string
		wider       bool
	}{
		{[]string{"obs.hub.mag.>"}, []string{"obs.hub.*.>"}, false},
		{[]string{"obs.hub.*.>"}, []string{"obs.hub.*.>"}, false},
		{[]string{"obs.hub.*.>"}, []string{"obs.hub.mag.>", "obs.hub.camera.>"}, true},
		{[]string{"obs.hub.mag.>", "obs.hub.camera.>"}, []string{"obs.hub.mag.>"}, true},
		{[]string{"obs.hub.mag.raw"}, []string{"obs.hub.*.>"}, true}, // it is not known to be covered
		{[]string{"obs.north.*.>"}, []string{"obs.hub.*.>"}, true},
		{[]string{"gap.hub.display", "notice.hub.mag"}, []string{"gap.hub.display", "notice.hub.*"}, false},
		{[]string{"notice.hub.mag.backfill"}, []string{"notice.hub.*"}, true},
		{[]string{"gap.hub.other"}, []string{"gap.hub.display"}, true},
	} {
		if got := bus.Wider("hub", c.has, c.wanted); got != c.wider {
			t.Errorf("%q beside %q: %v", c.has, c.wanted, got)
		}
	}
}
