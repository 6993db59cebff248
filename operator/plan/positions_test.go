// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/bus"
)

// A durable continues behind the furthest position of its own FeedConsumer in the current stream.
func TestGoesOnAfter(t *testing.T) {
	d := bus.Durable{Stream: "OBS_hub", UID: "c-1"}
	at := func(uid, token string) wire.PositionCursor {
		return wire.PositionCursor{UID: uid, Streams: map[string]string{"OBS_hub": token, "NOTICE_hub": "1-99-0"}}
	}
	for name, c := range map[string]struct {
		known []wire.PositionCursor
		want  uint64
	}{
		"nothing":                 {nil, 0},
		"the furthest":            {[]wire.PositionCursor{at("c-1", "1-4-0"), at("c-1", "1-7-0"), at("c-1", "1-5-0")}, 7},
		"of a stream before":      {[]wire.PositionCursor{at("c-1", "2-7-0"), at("c-1", "1-4-0")}, 4},
		"of another of its name":  {[]wire.PositionCursor{at("c-0", "1-7-0")}, 0},
		"of another stream alone": {[]wire.PositionCursor{{UID: "c-1", Streams: map[string]string{"NOTICE_hub": "1-99-0"}}}, 0},
		"malformed":               {[]wire.PositionCursor{at("c-1", "far")}, 0},
	} {
		if got := bus.GoesOnAfter(d, "1", c.known...); got != c.want {
			t.Errorf("%s: after %d, not %d", name, got, c.want)
		}
	}
}
