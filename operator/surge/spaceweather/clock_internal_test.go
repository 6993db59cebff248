// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// After a clock was two days ahead for a while, sources are heard again at once: samples that were taken meanwhile are not the newest for
// two days.
func TestClockWasAhead(t *testing.T) {
	server := newNOAA(t)
	server.answers(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"kp":6}`) })
	fixed, err := NewStatic(map[surge.Quantity]float64{surge.Kp: 6})
	if err != nil {
		t.Fatal(err)
	}
	file := "time,kp\n"
	for at := storm.Add(-9 * time.Hour); at.Before(storm.Add(72 * time.Hour)); at = at.Add(3 * time.Hour) {
		file += at.Truncate(3*time.Hour).Format(time.RFC3339) + ",6\n"
	}
	recorded, err := NewRecorded(strings.NewReader(file), RecordedConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string]Source{
		"JSON without times": jsonSource(t, JSONConfig{URL: server.URL, Values: map[surge.Quantity]string{surge.Kp: "{.kp}"}}), "static": fixed, "recorded": recorded,
	} {
		t.Run(name, func(t *testing.T) {
			now := storm.Add(49 * time.Hour)
			p, err := NewPoller(Config{Name: name, Source: source, Interval: time.Minute, Now: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			p.ask(t.Context())
			if now = storm; p.Signals()[0].Fresh(now) {
				t.Fatal("a sample of a time to come is believed")
			}
			p.ask(t.Context())
			if newest, _ := p.Signals()[0].Newest(); !p.Signals()[0].Fresh(now) {
				t.Errorf("the newest sample is %v at %v, and says nothing", newest, now)
			}
			if now = now.Add(24 * time.Hour); name == "recorded" {
				if p.ask(t.Context()); !p.Signals()[0].Fresh(now) {
					t.Errorf("a day later the file is not played any more: %s", told(p.Signals()[0].Samples))
				}
			}
		})
	}
}
