// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// TestContents: objects that contradict their media type are counted by day, with the first one of the day as the example.
func TestContents(t *testing.T) {
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	var c contents
	note := func(at time.Time, path, looks string) {
		c.note(&wire.Notice{Site: "thule", Instrument: "camera", Record: wire.Record{ID: path, Path: path, MediaType: "application/gzip", Looks: looks, ReceivedAt: at}})
	}
	note(noon, "frame.pgm.gz", "")
	if len(c.unsaid) != 0 {
		t.Errorf("what is as declared is reported: %+v", c.of)
	}
	note(noon, "key.pgm.gz", "text/plain")
	note(noon.Add(time.Minute), "picture.pgm.gz", "image/png")
	note(noon.AddDate(0, 0, -1), "late.pgm.gz", "text/plain")
	want := wire.ContentStatus{ReceivedAt: noon.Add(time.Minute), ID: "key.pgm.gz", Path: "key.pgm.gz", MediaType: "application/gzip", Looks: "text/plain", Count: 3, Today: 2}
	if got := c.of["camera"]; got != want || !c.unsaid["camera"] {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	note(noon.AddDate(0, 0, 1), "next.pgm.gz", "image/png")
	want = wire.ContentStatus{ReceivedAt: noon.AddDate(0, 0, 1), ID: "next.pgm.gz", Path: "next.pgm.gz", MediaType: "application/gzip", Looks: "image/png", Count: 4, Today: 1}
	if got := c.of["camera"]; got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
