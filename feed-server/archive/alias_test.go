// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
)

// Old URLs are answered with the same bytes and the same tags as new ones.
func TestAliases(t *testing.T) {
	t.Parallel()
	public := &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	l := newLab(t, nil,
		wire.InstrumentEntry{Instrument: "old", Station: "rank", Access: public, Aliases: []string{"{station}/{year2}{doy}/{hour}{minute}.jpg", "videos/{name}"}},
		wire.InstrumentEntry{Instrument: "secret", Station: "kir", Aliases: []string{"{station}/{year2}{doy}/{hour}{minute}.jpg"}},
		wire.InstrumentEntry{Instrument: "broken", Access: public, Aliases: []string{"{nonsense}"}})
	later := func(d time.Duration) func(*wire.Record) {
		return func(r *wire.Record) { r.ReceivedAt = storm.Add(d) }
	}
	l.put("old", "2015/second.jpg", "second", later(10*time.Second))
	first := l.put("old", "2015/first.jpg", "first")
	l.put("old", "2015/next.jpg", "next", later(time.Minute), func(r *wire.Record) { r.State = wire.StateRetracted })
	l.put("old", "n/day 1.mp4", "video", func(r *wire.Record) { r.Name = "day 1.mp4" })
	l.put("secret", "2015/a.jpg", "secret")
	const at = "/rank/15076/1200.jpg"
	if a := l.get(at); a.status != 200 || a.body != "first" || a.header.Get("ETag") != etag(first.Digest) {
		t.Errorf("%d %q %v", a.status, a.body, a.header)
	}
	l.get(at+"?t=1", "If-None-Match", etag(first.Digest)).want(t, "unchanged", 304)
	if a := l.get("/videos/day%201.mp4", "Range", "bytes=1-2"); a.status != 206 || a.body != "id" {
		t.Errorf("by its name: %d %q", a.status, a.body)
	}
	for path, status := range map[string]int{
		"/rank/15076/1201.jpg": 410, "/rank/15076/1202.jpg": 404, "/rank/15077/1200.jpg": 404, "/kir/15076/1200.jpg": 401, "/videos/day%202.mp4": 404,
		"/": 404, "/favicon.ico": 404, "/feeds/all": 404, "/rank/99999/1200.jpg": 404, "/%2e%2e%2f": 400, "/%00": 404,
	} {
		l.get(path).want(t, path, status)
	}
	if a := l.get("/feeds/all"); !strings.Contains(a.body, "/feeds/all/events?consumer=NAME") {
		t.Errorf("the address of a Feed: %s", a.body)
	}
	if a := l.get("/kir/15076/1200.jpg", "Authorization", "Bearer uni-token"); a.status != 200 || a.body != "secret" {
		t.Errorf("for a reader: %d %q", a.status, a.body)
	}
}

// Repeated requests for an old URL do not read its day again, until there is a new object.
func TestAliasAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil, wire.InstrumentEntry{Instrument: "old", Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic},
		Aliases: []string{"{year2}{doy}/{hour}{any}.jpg", "{year2}{doy}/{hour}{minute}.jpg"}}) // the first reads all, and writes none
	r := l.put("old", "a.jpg", "a")
	read := func() int { // since it was last called
		l.catalog.mu.Lock()
		defer l.catalog.mu.Unlock()
		n := l.catalog.days
		l.catalog.days = 0
		return n
	}
	for _, c := range []struct {
		path   string
		status int
	}{{"/15076/1200.jpg", 200}, {"/15076/1201.jpg", 404}} {
		l.get(c.path).want(t, c.path, c.status)
		if read() == 0 {
			t.Errorf("%s was answered without its day", c.path)
		}
		for range 3 {
			l.get(c.path).want(t, c.path, c.status)
			if c.status == 200 {
				l.get(c.path+"?t=1", "If-None-Match", etag(r.Digest)).want(t, "unchanged", 304)
			}
		}
		if n := read(); n > 0 {
			t.Errorf("%s: %d days were read for what is known", c.path, n)
		}
	}
	next := l.put("old", "b.jpg", "b", func(r *wire.Record) { r.ReceivedAt = storm.Add(time.Minute) })
	if a := l.get("/15076/1201.jpg"); a.status != 200 || a.header.Get("ETag") != etag(next.Digest) {
		t.Errorf("what is new: %d %v", a.status, a.header)
	}
	l.catalog.change("old", "a.jpg", func(r *wire.Record) { r.State = wire.StateRetracted })
	l.get("/15076/1200.jpg").want(t, "retracted", 410)
}

// The legacy view is one run of bytes, as it came.
func TestLegacy(t *testing.T) {
	t.Parallel()
	tcp := []wire.ListenerEntry{{Protocol: wire.ProtocolTCP, Port: 5000}}
	public := &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	l := newLab(t, nil, wire.InstrumentEntry{Instrument: "old", Listeners: tcp, Access: public}, wire.InstrumentEntry{Instrument: "older", Listeners: tcp, Access: public},
		wire.InstrumentEntry{Instrument: "secret", Listeners: tcp})
	var want string
	large := noise(9 << 20)
	for i, o := range []struct{ instrument, framing, body string }{
		{"old", wire.FramingLines, "first"}, {"old", "", "second"}, {"older", wire.FramingLengthPrefixed, "third"}, {"old", wire.FramingLines, ""}, {"old", "", large}, {"old", wire.FramingLines, "last"},
	} {
		r := l.put(o.instrument, fmt.Sprint("r/", i), o.body, func(r *wire.Record) {
			r.Port, r.Framing, r.ReceivedAt = 5000, o.framing, storm.Add(time.Duration(i)*time.Second)
		})
		head, tail := objectpath.Framed(r)
		want += string(head) + o.body + string(tail)
	}
	l.put("secret", "r/x", "secret", func(r *wire.Record) { r.Port, r.Source = 5000, "192.0.2.8:1" })
	l.put("old", "r/y", "elsewhere", func(r *wire.Record) { r.Port = 5001 })
	const at = "/legacy/192.0.2.7/5000/2015/03/17"
	whole := l.get(at)
	if whole.status != 200 || whole.body != want || whole.header.Get("Content-Length") != fmt.Sprint(len(want)) {
		t.Fatalf("%d with %d bytes, want %d: %v", whole.status, len(whole.body), len(want), whole.header)
	}
	tag := whole.header.Get("ETag")
	before := l.gets.Load()
	l.get(at, "If-None-Match", tag).want(t, "unchanged", 304)
	if a := l.ask(http.MethodHead, at); a.status != 200 || a.header.Get("Content-Length") != fmt.Sprint(len(want)) {
		t.Errorf("HEAD: %d %v", a.status, a.header)
	}
	if n := l.gets.Load(); n != before {
		t.Errorf("%d requests to the store for conditions alone", n-before)
	}
	for _, from := range []int{0, 1, 4, 5, 6, 11, 12, 13, 15, 16, 20, 21, 22, 23, 40} {
		for _, to := range []int{from, from + 3, from + 20, len(want) - 3 - from} {
			if a := l.get(at, "Range", fmt.Sprintf("bytes=%d-%d", from, to)); a.status != 206 || a.body != want[from:to+1] {
				t.Fatalf("%d to %d: %d with %d bytes", from, to, a.status, len(a.body))
			}
		}
	}
	for path, status := range map[string]int{
		"/legacy/192.0.2.7/5000/2015/03/18": 401, "/legacy/192.0.2.9/5000/2015/03/17": 401, "/legacy/192.0.2.8/5000/2015/03/17": 401,
		"/legacy/192.0.2.7/5000/2015/3/17": 404, "/legacy/": 404, "/legacy/x%2Fy": 400,
	} {
		l.get(path).want(t, path, status)
	}
	if a := l.get("/legacy/192.0.2.8/5000/2015/03/17", "Authorization", "Bearer uni-token"); a.status != 200 || a.body != "secret" {
		t.Errorf("for a reader: %d %q", a.status, a.body)
	}
	l.put("older", "r/later", "later", func(r *wire.Record) { r.Port, r.ReceivedAt = 5000, storm.Add(time.Hour) })
	if a := l.get(at, "If-None-Match", tag, "Range", fmt.Sprintf("bytes=%d-", len(want))); a.status != 206 || a.body != "later" {
		t.Errorf("what was appended: %d with %d bytes", a.status, len(a.body))
	}
}
