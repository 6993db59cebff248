// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/descriptions"
	"github.com/substorm/substorm/internal/wire"
)

// TestRightsOfItsTime: an object links to the license under which its data was observed.
func TestRightsOfItsTime(t *testing.T) {
	t.Parallel()
	generation := func(from time.Time, license string) wire.Description {
		e := wire.InstrumentEntry{Instrument: camera}
		if license != "" {
			e.Rights = &wire.RightsEntry{License: license}
		}
		return wire.DescriptionOf(site, e, from)
	}
	all := []wire.Description{generation(storm, "CC0-1.0"), generation(storm.Add(time.Hour), ""), generation(storm.Add(2*time.Hour), "CC-BY-SA-4.0")}
	other := wire.InstrumentEntry{Instrument: "other", Rights: &wire.RightsEntry{License: "MIT"},
		Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}}
	l := newLab(t, func(c *config) {
		c.Described = func(instrument string, at time.Time) (wire.Description, bool) {
			if instrument != camera {
				return wire.Description{}, false
			}
			return descriptions.At(all, at)
		}
	}, other)
	at := func(received time.Duration, observed ...time.Duration) func(*wire.Record) {
		return func(r *wire.Record) {
			r.ReceivedAt = storm.Add(received)
			if len(observed) > 0 {
				from, to := storm.Add(observed[0]), storm.Add(observed[1])
				r.ObservedFrom, r.ObservedTo = &from, &to
			}
		}
	}
	l.put(camera, "before", "a", at(-24*time.Hour))
	l.put(camera, "first", "b", at(5*time.Hour, time.Minute, 2*time.Hour)) // from when it was observed, not received
	l.put(camera, "none", "c", at(time.Hour))
	l.put(camera, "last", "d", at(3*time.Hour))
	l.put("other", "undescribed", "e", at(0))
	for path, want := range map[string]string{
		"allsky-1/before": "CC0-1.0", "allsky-1/first": "CC0-1.0", "allsky-1/none": "", "allsky-1/last": "CC-BY-SA-4.0", "other/undescribed": "MIT",
	} {
		if want != "" {
			want = "<https://spdx.org/licenses/" + want + `.html>; rel="license"`
		}
		a := l.get("/archive/" + path)
		a.want(t, path, 200)
		if links := strings.Join(a.header.Values("Link"), " "); links != want {
			t.Errorf("%s: Link %q, want %q", path, links, want)
		}
	}
}
