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
		"notices":             {wire.SelectedNotices("hub", "camera", false), []string{"notice.hub.camera"}},
		"notices of a leaf":   {wire.SelectedNotices("hub", north, false), []string{"notice.north.*"}},
		"backfill":            {wire.SelectedNotices("hub", "camera", true), []string{"notice.hub.camera", "notice.hub.camera.backfill"}},
		"backfill of a leaf":  {wire.SelectedNotices("hub", north, true), []string{"notice.north.*", "notice.north.*.backfill"}},
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

func TestParseCopiedStream(t *testing.T) {
	for name, want := range map[string]string{
		wire.CopiedObservationStream("hub", "north"): "north", wire.CopiedNoticeStream("hub", "a-1"): "a-1",
		wire.ObservationStream("hub"): "", "OBS_hub_": "", "OBS_thule_north": "", wire.ConsumerStream("hub", "c"): "",
	} {
		if leaf, ok := wire.ParseCopiedStream("hub", name); ok != (want != "") || ok && leaf != want {
			t.Errorf("stream %q is of leaf %q, %v; want %q", name, leaf, ok, want)
		}
	}
}

func TestSourcePosition(t *testing.T) {
	for header, want := range map[string]uint64{
		"OBS_hub_north:bdJOONbX 13 obs.north.>\frefused.hub.north.> obs.north.>\frefused.hub.north.> obs.north.mag.raw udgY4QdC": 13,
		"OBS_hub_north 4711 > > obs.north.mag.raw": 4711,
	} {
		if stream, sequence, ok := wire.SourcePosition(header); !ok || stream != "OBS_hub_north" || sequence != want {
			t.Errorf("%q: message %d of %q, %v; want %d", header, sequence, stream, ok, want)
		}
	}
	for _, header := range []string{"", "OBS_hub_north", "OBS_hub_north x"} {
		if _, _, ok := wire.SourcePosition(header); ok {
			t.Errorf("%q has a position", header)
		}
	}
}
