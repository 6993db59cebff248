// SPDX-License-Identifier: Apache-2.0

package hapi_test

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"
)

// BenchmarkServed is a day of 1 Hz, three components, in segments of ten minutes in a
// real store, over HTTP.
func BenchmarkServed(b *testing.B) {
	e := magnetometer()
	e.Channels[0].Parameters = e.Channels[0].Parameters[:1]
	e.Channels[0].Payload.Comment = ""
	l := newLab(b, e)
	day := start.Truncate(24 * time.Hour)
	const perSegment = 600
	for from := 0; from < 86_400; from += perSegment {
		var all []datagram
		for i := from; i < from+perSegment; i++ {
			s := float64(i) / 86_400 * 2 * math.Pi
			all = append(all, sample(day.Add(time.Duration(i)*time.Second), fmt.Sprintf("%.2f,%.2f,%.2f\n", 11039+40*math.Sin(s), -42+30*math.Cos(3*s), 55210+20*math.Sin(7*s))))
		}
		r := l.segment(b, "mag", "raw", uint64(1+from), all...)
		first, last := day.Add(time.Duration(from)*time.Second), day.Add(time.Duration(from+perSegment-1)*time.Second)
		r.ObservedFrom, r.ObservedTo, r.TimeSource = &first, &last, "Payload"
	}
	for _, recent := range []int{1, 64 << 20} { // nothing is held, or all
		l.serve(b, func(w *ways) { w.Recent = recent })
		for _, format := range []string{"csv", "binary"} {
			b.Run(fmt.Sprintf("%s,held=%t", format, recent > 1), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					answer, body := l.get(b, "/data", between("mag/field", day, day.Add(24*time.Hour), "format", format), "Accept-Encoding", "identity")
					if answer.StatusCode != http.StatusOK {
						b.Fatal(answer.Status)
					}
					b.SetBytes(int64(len(body)))
				}
			})
		}
	}
}
