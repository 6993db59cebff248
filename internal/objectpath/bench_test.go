// SPDX-License-Identifier: Apache-2.0

package objectpath

import (
	"testing"
	"time"

	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/wire"
)

// BenchmarkAlias looks for an old URL's object in a day of one image each second.
func BenchmarkAlias(b *testing.B) {
	alias, err := naming.Parse("{station}/{year2}{doy}/{hour}{minute}{second}.jpg")
	if err != nil {
		b.Fatal(err)
	}
	all := make([]wire.Record, 86_400)
	for i := range all {
		all[i] = record(noon.Truncate(24*time.Hour).Add(time.Duration(i)*time.Second), "image")
	}
	in := []Instrument{{Name: camera, Station: "rank", Aliases: []*naming.Template{alias}}}
	for b.Loop() {
		found, c := 0, Candidates("rank/26325/120000.jpg", in)[0]
		for i := range all {
			if c.Matches(&all[i]) {
				found++
			}
		}
		if found != 1 {
			b.Fatalf("%d objects have the URL", found)
		}
	}
}
