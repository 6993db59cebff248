// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// BenchmarkFind looks for an object of a day that is in memory, among ten years of
// days of 1,440 objects, with a minute of notices that are not listed yet.
func BenchmarkFind(b *testing.B) {
	c := New(Config{Site: site, Log: slog.New(slog.DiscardHandler)})
	c.isReady()
	var days []wire.RootDay
	for i := range 3650 {
		at := noon.AddDate(0, 0, i-3650)
		sum := manifest.NewSummary(wire.RootDay{Day: wire.DayOf(at), Version: 1})
		for _, name := range []string{"0000.jpg", "2359.jpg"} {
			sum.Add(object(at, at.Format("2006/01/02/")+name))
		}
		days = append(days, sum.Day())
	}
	last := &days[len(days)-1]
	d := &Day{Instrument: camera, Day: last.Day, ids: map[string]int{}}
	at, err := last.Day.Start()
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1440 {
		r := object(at.Add(time.Duration(i)*time.Minute), at.Format("2006/01/02/")+fmt.Sprintf("%02d%02d.jpg", i/60, i%60))
		d.Records, d.paths = append(d.Records, &r), append(d.paths, r.Path)
	}
	d.index()
	c.index.entries[camera] = wire.IndexEntry{Root: 1}
	c.cache.put("root/"+camera+"/1/", newRoot(days), costOf(days))
	c.cache.put("day/"+camera+"/"+tagOf(*last, "", nil), d, 1440*recordCost)
	c.overlay.begin(wire.StreamCursor{Epoch: "e", Next: 1})
	for i := range 60 {
		r := object(noon.Add(time.Duration(i)*time.Second), noon.Format("2006/01/02/")+fmt.Sprintf("12%02d.jpg", i))
		c.overlay.add("e", uint64(i+1), noon, wire.Notice{Site: site, Instrument: camera, Record: r}, 500)
	}
	path := d.paths[700]
	b.ReportAllocs()
	for b.Loop() {
		if r, err := c.Find(b.Context(), camera, path); err != nil || r.Path != path {
			b.Fatal(r, err)
		}
	}
}
