// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// The newest is the newest by observation, whatever comes late, and is pushed.
func TestLatest(t *testing.T) {
	l := newLab(t)
	old := object(noon.AddDate(0, 0, -3), "old.jpg")
	text := object(noon.AddDate(0, 0, -5), "notes.txt")
	text.MediaType = "text/plain"
	segment := object(noon.Add(time.Minute), "")
	segment.Segment = &wire.SegmentRange{Channel: "raw"}
	segment.MediaType = wire.MediaTypeSegment
	first := observed(object(noon, "first.jpg"), noon.Add(-time.Minute), noon.Add(-time.Minute))
	backfill := observed(object(noon.Add(time.Hour), "backfill.jpg"), noon.AddDate(0, 0, -1), noon.AddDate(0, 0, -1))
	backfill.Backfill = true
	l.part(camera, old)
	l.part(camera, text)
	l.part(camera, first, backfill, segment)
	l.flush()
	c := l.catalog(nil)
	latest := func(mediaType string) string {
		r, _ := c.Latest(camera, mediaType)
		return r.Published()
	}
	l.same("the latest", "first.jpg", latest(""))
	l.same("the latest image", "first.jpg", latest("image/jpeg"))
	l.same("the latest text", "notes.txt", latest("text/plain"))
	if _, found := c.Latest(camera, "video/mp4"); found {
		t.Error("there is a video")
	}
	if _, found := c.Latest("nobody", ""); found {
		t.Error("there is one of an unknown instrument")
	}
	if r, _ := c.Latest(camera, wire.MediaTypeSegment); r.Segment == nil {
		t.Error("segments are asked for, and there are none")
	}

	types := func() string {
		all, err := c.Types(t.Context(), camera)
		if err != nil {
			t.Error(err)
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	l.same("the types of the newest days", "image/jpeg", types())
	if all, err := c.Types(t.Context(), "nobody"); err != nil || len(all) > 0 {
		t.Errorf("of an unknown instrument there are %q, %v", all, err)
	}
	l.Store.Gets()
	if _, found := c.Latest(camera, "audio/ogg"); found || len(l.Store.Gets()) > 0 {
		t.Error("a second type that is not there is looked for")
	}

	records, cancel := c.Subscribe(camera)
	if r := <-records; r.ID != first.ID {
		t.Errorf("first %s", r.Path)
	}
	second := object(noon.Add(2*time.Hour), "second.jpg")
	early := observed(object(noon.Add(3*time.Hour), "early.jpg"), noon.Add(-time.Hour), noon.Add(-time.Hour))
	early.Backfill = true // and announced as such
	l.Announce(camera, second, early)
	if r := <-records; r.ID != second.ID {
		t.Errorf("then %s", r.Path)
	}
	l.ready(c)
	l.same("what comes late", "second.jpg", latest(""))
	for i := range 10 { // no reader receives
		l.Announce(camera, object(noon.Add(4*time.Hour+time.Duration(i)*time.Second), fmt.Sprintf("%d.jpg", i)))
	}
	l.ready(c)
	if r := <-records; r.Path != "9.jpg" {
		t.Errorf("a slow reader gets %s", r.Path)
	}
	future := observed(object(noon.Add(5*time.Hour), "future.jpg"), noon.AddDate(50, 0, 0), noon.AddDate(50, 0, 0))
	l.Announce(camera, future)
	next := object(noon.Add(6*time.Hour), "next.jpg")
	l.Announce(camera, next)
	l.ready(c)
	l.same("after one with a clock of its own", "next.jpg", latest("image/jpeg"))

	retracted := next
	retracted.State = wire.StateRetracted
	l.Announce(camera, retracted)
	l.ready(c)
	l.same("after the newest was retracted", "future.jpg", latest("image/jpeg"))
	cancel()
	cancel()
	for range records { // what was there, and the end
	}
	if r, _ := c.Latest(camera, "video/mp4"); r.ID != "" {
		t.Error("there is a video")
	}
	video := object(noon.Add(7*time.Hour), "v.mp4")
	video.MediaType = "video/mp4"
	l.Announce(camera, video)
	l.ready(c)
	l.same("the first of a kind", "v.mp4", latest("video/mp4"))
	l.same("the types", "image/jpeg video/mp4", types())
}
