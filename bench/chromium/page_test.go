// SPDX-License-Identifier: Apache-2.0

package chromium_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/console"
	"github.com/substorm/substorm/feed-server/hapi"
	"github.com/substorm/substorm/internal/wire"
)

// newSite returns an archive that is served together with its page, and HAPI.
func newSite(t *testing.T, more ...wire.InstrumentEntry) *archivetest.Lab {
	t.Helper()
	l := archivetest.New(t, more...)
	c := console.New(console.Config{Site: archivetest.Site, JetStream: l.JetStream, Catalog: l.Catalog, AccessCheck: l.AccessCheck, Logger: l.Logger})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	h, err := hapi.New(hapi.Config{Site: archivetest.Site, AccessCheck: l.AccessCheck, Archive: hapi.Manifests{Catalog: l.Catalog, Store: l.Store}, Log: l.Logger, Metrics: l.Metrics})
	if err != nil {
		t.Fatal(err)
	}
	l.Open(c.Endpoints(), h.Endpoints())
	return l
}

func variometer(name, station string) wire.InstrumentEntry {
	return wire.InstrumentEntry{
		Instrument: name, UID: name, Generation: 1, Station: station, Gateway: archivetest.Pool, CadenceMillis: 60_000, Access: archivetest.Public,
		About:     &wire.AboutEntry{Type: "Magnetometer"},
		Listeners: []wire.ListenerEntry{{Name: "telemetry", Protocol: wire.ProtocolUDP, Port: 30102, Channel: "raw"}},
		Channels: []wire.ChannelEntry{{
			Name: "seconds", Datagrams: "raw", Payload: wire.PayloadEntry{Type: wire.PayloadCSV, Separator: ","}, CadenceMillis: 1000,
			Time:       wire.ChannelTimeEntry{Source: wire.TimeReceived, Precision: wire.PrecisionMilliseconds, Location: "begin"},
			Parameters: []wire.ParameterEntry{{Name: "field", Type: wire.ParameterDouble, Units: "nT", Column: 1, Size: []int{3}, Components: []string{"H", "E", "Z"}}},
		}},
	}
}

// sky is a picture of some hundred pixels.
func sky(t *testing.T, shift float64) string {
	t.Helper()
	const size = 480
	m := image.NewRGBA(image.Rect(0, 0, size, size))
	for y := range size {
		for x := range size {
			dx, dy := float64(x)/size-.5, float64(y)/size-.5
			glow := math.Exp(-math.Pow((dy+.2*math.Sin(6*dx+shift))*9, 2)) * math.Max(0, 1-4*(dx*dx+dy*dy))
			m.Set(x, y, color.RGBA{uint8(30 * glow), uint8(12 + 220*glow), uint8(28 + 110*glow), 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func field(i int) string {
	x := float64(i) / 90
	return fmt.Sprintf("%.2f,%.2f,%.2f", 10500+60*math.Sin(x)+9*math.Sin(5*x), 120+30*math.Cos(1.7*x), 53100-45*math.Sin(.6*x+1))
}

// The page shows what comes without being loaded again, sends requests to its own origin only, and causes no complaint of the browser.
func TestPage(t *testing.T) {
	t.Parallel()
	b := start(t)
	camera := wire.InstrumentEntry{Instrument: archivetest.Camera, UID: "camera", Generation: 1, Station: "thule", MediaType: "image/png", CadenceMillis: 60_000, Gateway: archivetest.Pool,
		Access: archivetest.Public, About: &wire.AboutEntry{Type: "AllSkyCamera"}, Rights: &wire.RightsEntry{License: "CC-BY-4.0", Credit: "Image: Thule"},
		Listeners: []wire.ListenerEntry{{Name: "frames", Protocol: wire.ProtocolHTTP, Port: 30101}}}
	l := newSite(t)
	l.Declare(camera, variometer("magnetometer", "thule"), variometer("variometer-2", "qaanaaq"))
	for i := range 1200 {
		l.Datagram("magnetometer", "raw", field(i), time.Now().Add(time.Duration(i-1200)*2*time.Second))
	}
	l.Report("magnetometer", time.Now())
	l.Report("variometer-2", time.Now().Add(-time.Hour))
	l.Asked()
	tab, err := b.Watch(l.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tab.Close)
	until := func(what, expression string) {
		t.Helper()
		l.Until(what, func() bool {
			var is bool
			if err := tab.Read(expression, &is); err != nil {
				t.Fatal(err)
			}
			return is
		})
	}
	until("the page is connected", `document.getElementById("connection").textContent === "live"`)
	until("an instrument flows", `document.querySelector('tr[data-name=magnetometer] .state').innerText.includes("flowing")`)
	until("another does not", `document.querySelector('tr[data-name=variometer-2] .state').innerText.includes("overdue")`)
	until("the counts say so", `document.querySelector('.counts [data-state=Overdue] b').textContent === "1"`)

	until("there is no picture yet", `document.images.length === 1`)
	for n, name := range []string{"first.png", "second.png"} {
		l.Put(archivetest.Camera, name, sky(t, float64(n)), typed("image/png"))
		l.Report(archivetest.Camera, time.Now())
		until(name+" shows", `[...document.querySelectorAll("figure img")].some(i => i.src.endsWith("/`+name+`") && i.naturalWidth === 480)`)
	}

	until("three lines are drawn", `document.querySelectorAll("#chart .trace").length === 3`)
	var before string
	if err := tab.Read(`document.querySelector("#chart .trace").getAttribute("d")`, &before); err != nil {
		t.Fatal(err)
	}
	l.Datagram("magnetometer", "raw", "11000.25,7,53000", time.Now())
	until("the line goes on", `document.querySelector("#chart .name").textContent.startsWith("H  1")&&document.querySelector("#chart .trace").getAttribute("d")!==`+fmt.Sprintf("%q", before))
	if err := tab.Do(`const f = document.getElementById("find"); f.value = "qaan over"; f.dispatchEvent(new Event("input"))`); err != nil {
		t.Fatal(err)
	}
	until("what is looked for is found", `[...document.querySelectorAll("tr[data-name]")].filter(r => r.offsetHeight).length === 1`)
	if err := tab.Do(`const g = document.getElementById("find"); g.value = ""; g.dispatchEvent(new Event("input"))`); err != nil {
		t.Fatal(err)
	}
	until("a Site without levels shows no space weather", `document.getElementById("weather").hidden`)
	ended := time.Now().Add(-20 * time.Minute).UTC()
	level := &wire.SurgeLevel{Site: archivetest.Site, Level: "storm", Since: &ended, Why: "Kp 7.3 (kp) ≥ 5", Values: []wire.SpaceWeatherValue{
		{Quantity: "Kp", Value: 7.33, Source: "kp", ValidTo: ended, StaleAfterMillis: (4 * time.Hour).Milliseconds()},
		{Quantity: "Bz", Value: -14.2, Source: "wind", Spacecraft: "SOLAR1", ValidTo: ended, StaleAfterMillis: (15 * time.Minute).Milliseconds()},
	}}
	l.Level(level)
	until("the level shows", `(w => !w.hidden && w.innerText.includes("level storm") && w.innerText.includes("Kp 7.3 (kp) ≥ 5"))(document.getElementById("weather"))`)
	until("a value shows with its age", `document.querySelector("#values li").innerText.includes("Kp 7.3") && document.querySelector("#values li .ago").textContent === "20 min ago"`)
	until("one that is stale says so, and no other does", `[...document.querySelectorAll("#values li")].map(li => li.innerText.includes("stale")).join() === "false,true"`)
	shoot(t, tab.Tab)
	// A value that gets stale while the page is open is shown as stale by the page itself.
	level.Values[0].StaleAfterMillis = time.Since(ended).Milliseconds() + 2000
	l.Level(level)
	until("both are stale", `document.querySelectorAll("#values .stale").length === 2`)
	l.Level(nil)
	until("the levels are gone", `document.getElementById("weather").hidden`)

	for _, width := range []int64{1280, 360} {
		if err := tab.Resize(width, 900, false); err != nil {
			t.Fatal(err)
		}
		until(fmt.Sprintf("nothing is wider than %d pixels", width), `document.documentElement.scrollWidth <= innerWidth`)
	}
	// The server ends the events: the page comes again, and says that there is something else.
	changed := variometer("magnetometer", "thule")
	changed.Channels[0].CadenceMillis = 2000
	l.Declare(camera, changed, variometer("variometer-2", "qaanaaq"))
	until("the page tells of other instruments", `!document.getElementById("changed").hidden`)
	l.Datagram("magnetometer", "raw", "90000,7,53000", time.Now())
	until("the line goes on again", `+document.querySelector("#chart .name").textContent.split(/\s+/)[1] > 12000`)
	until("the page is connected again", `document.getElementById("connection").textContent === "live"`)

	seen := tab.Seen()
	for _, url := range seen.Requests {
		if !strings.HasPrefix(url, l.URL+"/") {
			t.Errorf("the page asked %s", url)
		}
	}
	if len(seen.Requests) == 0 {
		t.Error("no request was seen")
	}
	if len(seen.Complaints) > 0 {
		t.Errorf("the browser complains: %q", seen.Complaints)
	}
	pages := 0
	for _, asked := range l.Asked() {
		if asked == "GET /" {
			pages++
		}
	}
	if pages != 1 {
		t.Errorf("the page was asked for %d times", pages)
	}
}
