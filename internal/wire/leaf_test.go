// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"testing"

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
