// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/wire"
)

func basic(name string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("anybody:"+name+"-token"))
}

func TestWhoMayRead(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(c *config) { c.endpoint.Limits.Failures = endpoint.Rate{PerSecond: 1, Burst: 1000} },
		wire.InstrumentEntry{Instrument: "readers"},
		wire.InstrumentEntry{Instrument: "restricted", Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessRestricted, Readers: []string{"uni"}}})
	for _, instrument := range []string{camera, "readers", "restricted"} {
		l.put(instrument, "day/a.jpg", "a")
	}
	l.snapshot.Feeds = map[string]wire.FeedEntry{"some": {Feed: "some", Instruments: []string{"readers", "restricted"}}}
	l.snapshot.Consumers = map[string]wire.ConsumerEntry{"viewer": {Consumer: "viewer", Feed: "some", Tokens: []wire.TokenHash{wire.HashToken([]byte("salt"), "viewer-token")}}}
	for _, c := range []struct {
		who, instrument string
		status          int
	}{
		{"", camera, 200}, {"Bearer uni-token", camera, 200}, {"Bearer nobody", camera, 401}, {"Bearer ", camera, 401}, {"Digest x", camera, 401}, {"Basic !", camera, 401},
		{"", "readers", 401}, {"Bearer uni-token", "readers", 200}, {"bearer other-token", "readers", 200}, {basic("other"), "readers", 200}, {basic("nobody"), "readers", 401},
		{basic("viewer"), "readers", 200}, {"Bearer viewer-token", "restricted", 403},
		{"", "restricted", 401}, {"Bearer uni-token", "restricted", 200}, {"Bearer other-token", "restricted", 403}, {basic("uni"), "restricted", 200},
	} {
		var headers []string
		if c.who != "" {
			headers = []string{"Authorization", c.who}
		}
		for _, path := range []string{"", "day/", "day/a.jpg", "?format=json"} {
			for range 2 { // the second time it is known
				a := l.get("/archive/"+c.instrument+"/"+path, headers...)
				a.want(t, c.who+" for "+c.instrument+"/"+path, c.status)
				if asks := a.header.Values("WWW-Authenticate"); (a.status == 401) != (len(asks) == 2) {
					t.Errorf("WWW-Authenticate %v", asks)
				}
				if public := strings.HasPrefix(a.header.Get("Cache-Control"), "public"); a.status == 200 && public != (c.instrument == camera) {
					t.Errorf("%s may be cached: %s", c.instrument, a.header.Get("Cache-Control"))
				}
			}
		}
	}
	for who, want := range map[string][]string{"": {"allsky-1/"}, "Bearer other-token": {"allsky-1/", "readers/"}, "Bearer uni-token": {"allsky-1/", "readers/", "restricted/"}} {
		var headers []string
		if who != "" {
			headers = []string{"Authorization", who}
		}
		if got := l.list("/archive/", headers...).names(); !slices.Equal(got, want) {
			t.Errorf("%q sees %v, want %v", who, got, want)
		}
	}
	delete(l.snapshot.Instruments, camera)
	l.get("/archive/").want(t, "an archive of nothing public", 401)
	l.snapshot.Revision, l.snapshot.Instruments = 0, nil
	l.get("/archive/").want(t, "before the registry", 503)
	for _, path := range []string{"/archive/allsky-1/", "/sitemap.xml", "/sitemaps/allsky-1.xml", "/legacy/192.0.2.7/30100/2026/11/21", "/old.jpg"} {
		l.get(path).want(t, "before the registry", 503)
	}
}

// Under embargo only the named readers see even the names of objects.
func TestEmbargo(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil, wire.InstrumentEntry{Instrument: "later",
		Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, EmbargoMillis: time.Hour.Milliseconds(), Readers: []string{"uni"}}})
	now := time.Now().UTC()
	observed := now.Add(-2 * time.Hour)
	l.put("later", "old/known.jpg", "known")
	l.put("later", "old/new.jpg", "new", func(r *wire.Record) { r.ReceivedAt = now })
	l.put("later", "old/backfill.jpg", "backfill", func(r *wire.Record) { r.ReceivedAt, r.ObservedFrom, r.ObservedTo = now, &observed, &observed })
	l.put("later", "hidden/new.jpg", "new", func(r *wire.Record) { r.ReceivedAt = now })
	uni := []string{"Authorization", "Bearer uni-token"}
	for path, status := range map[string]int{"old/known.jpg": 200, "old/backfill.jpg": 200, "old/new.jpg": 404, "hidden/new.jpg": 404, "hidden/": 404, "hidden": 404, "old": 301} {
		a := l.get("/archive/later/" + path)
		a.want(t, path+" for an anonymous reader", status)
		if strings.HasPrefix(a.header.Get("Cache-Control"), "public") {
			t.Errorf("%s may be cached for all: %s", path, a.header.Get("Cache-Control"))
		}
		l.get("/archive/later/"+path, "Authorization", "Bearer other-token").want(t, path+" for a reader who is not named", status)
		if strings.HasSuffix(path, "jpg") {
			l.get("/archive/later/"+path, uni...).want(t, path+" for the reader", 200)
		}
	}
	// Only readers who may have an object get the answer that it was retracted.
	l.put("later", "old/taken.jpg", "taken", func(r *wire.Record) { r.ReceivedAt, r.State = now, wire.StateRetracted })
	l.get("/archive/later/old/taken.jpg").want(t, "what was retracted, for an anonymous reader", 404)
	l.get("/archive/later/old/taken.jpg", uni...).want(t, "what was retracted, for the reader", 410)
	// Requests for hidden and for missing objects get the same answer.
	hidden, missing := l.get("/archive/later/old/new.jpg"), l.get("/archive/later/old/nix.jpg")
	if strings.ReplaceAll(hidden.body, "new", "nix") != missing.body {
		t.Errorf("hidden: %s\nmissing: %s", hidden.body, missing.body)
	}
	for path, want := range map[string][2][]string{
		"":     {{"old/"}, {"hidden/", "old/"}},
		"old/": {{"backfill.jpg", "known.jpg"}, {"backfill.jpg", "known.jpg", "new.jpg"}},
	} {
		if got := l.list("/archive/later/" + path).names(); !slices.Equal(got, want[0]) {
			t.Errorf("an anonymous reader sees %v in %q, want %v", got, path, want[0])
		}
		if got := l.list("/archive/later/"+path, uni...).names(); !slices.Equal(got, want[1]) {
			t.Errorf("the reader sees %v in %q, want %v", got, path, want[1])
		}
	}
	anonymous, reader := l.get("/archive/later/old/"), l.get("/archive/later/old/", uni...)
	if anonymous.header.Get("ETag") == reader.header.Get("ETag") || !strings.Contains(anonymous.header.Get("Vary"), "Authorization") {
		t.Errorf("anonymous reader %v\nreader %v", anonymous.header, reader.header)
	}
	// Tags do not reveal when an object arrives under embargo either.
	tags := func(header ...string) []string {
		var all []string
		for _, path := range []string{"", "old/"} {
			all = append(all, l.get("/archive/later/"+path, header...).header.Get("ETag"))
		}
		return all
	}
	for i := 0; ; i++ {
		minute, before, readers := time.Now().Truncate(time.Minute), tags(), tags(uni...)
		l.put("later", fmt.Sprintf("old/another-%d.jpg", i), "another", func(r *wire.Record) { r.ReceivedAt = now })
		after := tags()
		if slices.Equal(readers, tags(uni...)) {
			t.Error("the tags of a reader who may have it do not change")
		}
		if time.Now().Truncate(time.Minute).Equal(minute) {
			if !slices.Equal(before, after) {
				t.Errorf("tags for an anonymous reader: before %q, after %q", before, after)
			}
			break
		}
	}
}

// A client that asks too often waits, and one that asks far too often is refused: each client
// by itself, and robots before people.
func TestLimits(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(c *config) {
		c.endpoint.Limits = endpoint.Limits{Robot: endpoint.Rate{PerSecond: 0.001, Burst: 5}, Person: endpoint.Rate{PerSecond: 1000, Burst: 1000}}
		c.endpoint.Proxies = endpoint.Proxies{netip.MustParsePrefix("127.0.0.0/8")}
	})
	l.put(camera, "a.jpg", "a")
	storm := func(agent, address string) map[int]int {
		var refused, granted atomic.Int32
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.url+"/archive/allsky-1/a.jpg", nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("User-Agent", agent)
				r.Header.Set("X-Forwarded-For", "203.0.113.9, "+address)
				resp, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				switch {
				case resp.StatusCode == http.StatusOK:
					granted.Add(1)
				case resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "":
					refused.Add(1)
				default:
					t.Errorf("%d %v", resp.StatusCode, resp.Header)
				}
			})
		}
		all.Wait()
		return map[int]int{200: int(granted.Load()), 429: int(refused.Load())}
	}
	for _, c := range []struct {
		agent, address string
		granted        int
	}{
		{"Wget/1.11.4", "192.0.2.1", 5}, {"Wget/1.11.4", "192.0.2.1", 0}, {"Wget/1.11.4", "192.0.2.2", 5}, {"Mozilla/5.0 (compatible; Somebot/2.1)", "192.0.2.3", 5},
		{"Wget/1.11.4", "2001:db8::1", 5}, {"Wget/1.11.4", "2001:db8::2", 0}, {"Wget/1.11.4", "2001:db8:0:1::1", 5},
		{"Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", "192.0.2.1", 20},
	} {
		if got := storm(c.agent, c.address); got[200] != c.granted || got[429] != 20-c.granted {
			t.Errorf("%s from %s: %v, want %d answered", c.agent, c.address, got, c.granted)
		}
	}
}

// A client that makes one request after the other is slowed down, and never refused.
func TestPace(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(c *config) { c.endpoint.Limits.Robot = endpoint.Rate{PerSecond: 200, Burst: 1} })
	l.put(camera, "a.jpg", "a")
	for range 50 {
		l.get("/archive/allsky-1/a.jpg", "User-Agent", "").want(t, "one after the other", 200)
	}
}
