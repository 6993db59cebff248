// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/wire"
)

// A title names the station, and less where it does not fit 40 characters.
func TestTitle(t *testing.T) {
	t.Parallel()
	about := &wire.AboutEntry{Type: "Magnetometer"}
	for want, in := range map[string]wire.InstrumentEntry{
		"Magnetometer mag at rankin-inlet, field":   {Instrument: "mag", Station: "rankin-inlet", About: about},
		"fluxgate-1 at resolute-bay-north, field":   {Instrument: "fluxgate-1", Station: "resolute-bay-north", About: about},
		"Magnetometer mag, field":                   {Instrument: "mag", About: about},
		"mag at rankin-inlet, field":                {Instrument: "mag", Station: "rankin-inlet"},
		"mag/field":                                 {Instrument: "mag"},
		"Magnetometer much-longer-than-that, field": {Instrument: "much-longer-than-that", Station: strings.Repeat("x", 40), About: about},
	} {
		d := &dataset{id: in.Instrument + "/field", instrument: in, channel: wire.ChannelEntry{Name: "field"}}
		if len(want) > 40 {
			want = d.id
		}
		if got := d.title(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
