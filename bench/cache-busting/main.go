// SPDX-License-Identifier: Apache-2.0

// Command cache-busting repeats figure 7 of the Aurora study: what a live page carries that busts caches, that asks whether something changed, and that is told.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/bench/internal/browser"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/relay"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/internal/wire"
)

// The study's figure 7.
const (
	size   = 200_000
	images = 10
	asks   = 100
	// change is how long an image is the newest, every how often a page asks for it.
	change = 30 * time.Second
	every  = 3 * time.Second
	// pages that look at the same time.
	pages = 100

	instrument = "allsky-1"
	latest     = "/latest/" + instrument
	// speedVariable makes all of it so many times as fast.
	speedVariable = "SUBSTORM_BENCH_BUSTING_SPEED"
)

// The ways that a page asks.
const (
	busting     = "busting"
	conditional = "conditional"
	push        = "push"
)

var ways = []string{busting, conditional, push}

//go:embed page.html
var page []byte

func main() { lab.Run(run) }

func run(l *lab.Lab) error {
	ctx := context.Background()
	speed, err := lab.Number(speedVariable, 1, 1)
	if err != nil {
		return err
	}
	b := &bench{lab: l, report: report.New("cache-busting", 1), speed: time.Duration(speed), relays: map[string]*relay.Relay{}}
	b.site = web.NewSite(l, web.Options{Instruments: []wire.InstrumentEntry{web.Camera(instrument, change/b.speed)}})
	if b.browser, err = browser.Start(l); err != nil {
		return err
	}
	for _, way := range ways {
		for _, who := range []string{one, many} {
			if b.relays[who+way], err = relay.Start(l, b.site.Server.Address()); err != nil {
				return err
			}
		}
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	b.tell()
	return b.report.Finish()
}

// The clients, as the report names them.
var (
	one  = "1 page, Chromium"
	many = fmt.Sprintf("%d pages", pages)
)

type bench struct {
	lab     *lab.Lab
	report  *report.Report
	site    *web.Site
	browser *browser.Browser
	relays  map[string]*relay.Relay
	speed   time.Duration
}

// measure lets all pages look by all ways at the same time.
func (b *bench) measure(ctx context.Context) error {
	if err := b.put(ctx, 0); err != nil {
		return err
	}
	if err := b.site.Await(ctx, latest); err != nil {
		return err
	}
	begin := time.Now()
	// Half of the time that is between two asks: no ask comes as an image does.
	first := begin.Add(every / 2 / b.speed)
	end := begin.Add(images * change / b.speed)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for n := 1; n < images; n++ {
			time.Sleep(time.Until(begin.Add(time.Duration(n) * change / b.speed)))
			if err := b.put(ctx, n); err != nil {
				return err
			}
		}
		return nil
	})
	for _, way := range ways {
		group.Go(func() error { return b.chromium(way, first, end) })
		for n := range pages {
			group.Go(func() error {
				p := &reader{latest: b.relays[many+way].URL(latest), address: fmt.Sprintf("198.18.0.%d", n+1), seen: map[string]bool{}}
				if err := p.look(ctx, way, first, end, every/b.speed); err != nil {
					return fmt.Errorf("page %d, %s: %w", n+1, way, err)
				}
				return saw(way, len(p.seen))
			})
		}
	}
	return group.Wait()
}

func saw(way string, n int) error {
	if n != images {
		return fmt.Errorf("a page, %s, saw %d images of %d", way, n, images)
	}
	return nil
}

// put makes another image the newest.
func (b *bench) put(ctx context.Context, n int) error {
	_, err := b.site.Put(ctx, web.Object{Instrument: instrument, Name: fmt.Sprintf("%02d.jpg", n), MediaType: "image/jpeg", Body: web.Noise(size, n), At: time.Now().UTC()})
	return err
}

// chromium lets a real browser look.
func (b *bench) chromium(way string, first, end time.Time) error {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }))
	defer server.Close()
	time.Sleep(time.Until(first))
	q := url.Values{"by": {way}, "latest": {b.relays[one+way].URL(latest)}, "every": {strconv.FormatInt((every / b.speed).Milliseconds(), 10)}, "asks": {strconv.Itoa(asks)}}
	tab, err := b.browser.Open(server.URL + "/?" + q.Encode())
	if err != nil {
		return err
	}
	defer tab.Close()
	time.Sleep(time.Until(end))
	var seen struct {
		Asks   int
		Images []string
		Error  string
	}
	for deadline := end.Add(browser.Timeout); ; { // a page that began late ends late
		if err := tab.Read("window.seen", &seen); err != nil {
			return err
		}
		if len(seen.Images) == images && (way == push || seen.Asks == asks) || time.Now().After(deadline) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if seen.Error != "" {
		return fmt.Errorf("Chromium, %s: %s", way, seen.Error)
	}
	if want := map[bool]int{true: images, false: asks}[way == push]; seen.Asks != want {
		return fmt.Errorf("Chromium, %s, asked %d times, not %d", way, seen.Asks, want)
	}
	return saw("Chromium, "+way, len(seen.Images))
}

// tell reports what went over the wire.
func (b *bench) tell() {
	r := b.report
	r.Note("An image of %d B that changes every %v, %d times; a page asks every %v, %d times. Bytes and requests of one page, both ways, heads included; %d times as fast.",
		size, change, images, every, asks, b.speed)
	for _, who := range []string{one, many} {
		count := map[string]float64{one: 1, many: pages}[who]
		for _, way := range ways {
			over := b.relays[who+way]
			r.Add(who, way, "B", float64(over.Bytes())/count)
			r.Add(who+", requests", way, "requests", float64(over.Requests())/count)
		}
		for _, goal := range []struct {
			name, way, suffix string
			of                float64
		}{{"bytes", conditional, "", 9}, {"bytes", push, "", 9.5}, {"requests", push, ", requests", 8}} {
			r.Compare(fmt.Sprintf("%s,busting/%s,%s", goal.name, goal.way, who),
				[]report.Pair{{Case: who + goal.suffix, Candidate: busting, OfCase: who + goal.suffix, OfCandidate: goal.way}}, ">=", goal.of)
		}
	}
}
