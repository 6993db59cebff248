// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

func TestSiteOfStream(t *testing.T) {
	for name, want := range map[string]string{
		wire.ObservationStream("thule"): "thule", wire.NoticeStream("a-1"): "a-1",
		wire.FeedStream("hub", "all"): "", wire.ConsumerStream("hub", "c"): "", "OBS_": "", "": "",
		"KV_" + wire.RegistryBucket("hub"): "",
	} {
		if site, ok := wire.SiteOfStream(name); site != want || ok != (want != "") {
			t.Errorf("stream %q is of site %q, %v; want %q", name, site, ok, want)
		}
	}
}
