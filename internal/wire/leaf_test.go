// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
)

func TestSiteOfStream(t *testing.T) {
	for name, want := range map[string]string{
		wire.ObservationStream("thule"): "thule", wire.NoticeStream("a-1"): "a-1",
		wire.FeedStream("hub", "all-sky"): "hub", wire.ConsumerStream("hub", "c"): "hub", "OBS_": "", "": "", "FEED_hub": "", "OBS_a_b": "",
		"KV_" + wire.RegistryBucket("hub"): "",
	} {
		if site, ok := wire.SiteOfStream(name); ok != (want != "") || ok && site != want {
			t.Errorf("stream %q is of site %q, %v; want %q", name, site, ok, want)
		}
	}
}

func TestLeafInstruments(t *testing.T) {
	if leaf, ok := wire.ParseLeafInstruments(wire.LeafInstruments("north")); !ok || leaf != "north" {
		t.Errorf("leaf %q, %v", leaf, ok)
	}
	if leaf, ok := wire.ParseLeafInstruments("north"); ok {
		t.Errorf("an instrument's name is leaf %q", leaf)
	}
}

func TestSelected(t *testing.T) {
	north := wire.LeafInstruments("north")
	for name, c := range map[string]struct {
		is, want []string
	}{
		"notices":             {[]string{wire.SelectedNotices("hub", "camera")}, []string{"notice.hub.camera"}},
		"notices of a leaf":   {[]string{wire.SelectedNotices("hub", north)}, []string{"notice.north.>"}},
		"telemetry":           {wire.SelectedObservations("hub", "mag", nil), []string{"obs.hub.mag.>"}},
		"channels":            {wire.SelectedObservations("hub", "mag", []string{"a", "b"}), []string{"obs.hub.mag.a", "obs.hub.mag.b"}},
		"telemetry of a leaf": {wire.SelectedObservations("hub", north, nil), []string{"obs.north.*.>"}},
		"channels of a leaf":  {wire.SelectedObservations("hub", north, []string{"a"}), []string{"obs.north.*.a"}},
	} {
		if diff := cmp.Diff(c.want, c.is); diff != "" {
			t.Errorf("%s (-want +is):\n%s", name, diff)
		}
	}
}
