// SPDX-License-Identifier: Apache-2.0

package latest_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/latest"
	"github.com/substorm/substorm/internal/wire"
)

func newLab(t *testing.T, more ...wire.InstrumentEntry) *archivetest.Lab {
	t.Helper()
	l := archivetest.New(t, more...)
	l.Open(latest.New(latest.Config{Catalog: l.Catalog, AccessCheck: l.AccessCheck, Archive: l.Archive}).Endpoints())
	return l
}

// until asks until the body is that.
func until(l *archivetest.Lab, path, body string, headers ...string) (a archivetest.Answer) {
	l.Helper()
	l.Until(path+" is "+body, func() bool {
		a = l.Get(path, headers...)
		return a.Body == body
	})
	return a
}

func observed(at time.Time) func(*wire.Record) {
	return func(r *wire.Record) { r.ObservedFrom, r.ObservedTo, r.TimeSource = &at, &at, wire.TimeSourceName }
}

func typed(mediaType string) func(*wire.Record) {
	return func(r *wire.Record) { r.MediaType = mediaType }
}

func TestLatest(t *testing.T) {
	t.Parallel()
	l := newLab(t, wire.InstrumentEntry{Instrument: "mag", Access: archivetest.Public, Channels: []wire.ChannelEntry{{Name: "seconds", Datagrams: "raw"}}},
		wire.InstrumentEntry{Instrument: "closed", Access: archivetest.Restricted}, wire.InstrumentEntry{Instrument: "later",
			Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, EmbargoMillis: time.Hour.Milliseconds(), Readers: []string{archivetest.Reader}}})
	if a := l.Get("/latest/allsky-1"); a.Status != http.StatusNotFound {
		t.Errorf("of nothing: %d %s", a.Status, a.Body)
	}
	if a := l.Get("/latest/mag"); a.Status != http.StatusNotFound || !strings.Contains(a.Body, "/hapi") {
		t.Errorf("of telemetry: %d %s", a.Status, a.Body)
	}
	now := time.Now().UTC()
	first := l.Put(archivetest.Camera, "2026/11/21/a b.jpg", "first", observed(now))
	a := until(l, "/latest/allsky-1", "first")
	for name, want := range map[string]string{
		"Content-Location": "/archive/allsky-1/2026/11/21/a%20b.jpg", "Etag": `"` + first.Digest.String() + `"`, "Content-Type": "image/jpeg", "Vary": "Accept",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if links := strings.Join(a.Header["Link"], ", "); !strings.Contains(links, `</latest/allsky-1/events>; rel="monitor"`) || !strings.Contains(links, `rel="license"`) {
		t.Errorf("links: %s", links)
	}
	if at := l.Get(a.Header.Get("Content-Location")); at.Body != "first" || at.Header.Get("Etag") != a.Header.Get("Etag") {
		t.Errorf("its own URL: %d %q", at.Status, at.Body)
	}
	if a := l.Get("/latest/allsky-1?_=123", "If-None-Match", a.Header.Get("Etag")); a.Status != http.StatusNotModified || a.Body != "" {
		t.Errorf("asked again: %d", a.Status)
	}

	l.Put(archivetest.Camera, "late.jpg", "late", observed(now.Add(-time.Hour)))
	l.Put(archivetest.Camera, "list.csv", "list", observed(now.Add(-time.Minute)), typed("text/csv"))
	until(l, "/latest/allsky-1?type=text/csv", "list")
	for _, c := range []struct {
		accept, want string
		status       int
	}{
		{"*/*", "first", 200}, {"text/*", "list", 200}, {"text/csv", "list", 200}, {"image/avif,image/webp,image/*,*/*;q=0.8", "first", 200},
		{"text/csv, image/*;q=0.5", "list", 200}, {"video/*", "", 406},
		{"text/html", "first", 200}, {"text/html,application/xhtml+xml", "first", 200}, {"text/html, text/csv;q=0.1", "list", 200},
	} {
		if a := l.Get("/latest/allsky-1", "Accept", c.accept); a.Status != c.status || c.want != "" && a.Body != c.want {
			t.Errorf("%s: %d %q, want %q", c.accept, a.Status, a.Body, c.want)
		}
	}
	if a := l.Get("/latest/allsky-1?type=video/mp4"); a.Status != http.StatusNotFound {
		t.Errorf("of a type that it has not: %d", a.Status)
	}

	l.Put("closed", "c.jpg", "closed")
	l.Put("later", "new.jpg", "new")
	token := []string{"Authorization", "Bearer " + archivetest.Token}
	until(l, "/latest/closed", "closed", token...)
	until(l, "/latest/later", "new", token...)
	for path, want := range map[string]int{"/latest/closed": 401, "/latest/closed/events": 401, "/latest/later": 404, "/latest/later/events": 404, "/latest/nobody": 404, "/latest/nobody/events": 404} {
		if a := l.Get(path); a.Status != want {
			t.Errorf("%s for an anonymous reader: %d, want %d", path, a.Status, want)
		}
	}
}

// events reads Server-Sent Events.
type events struct {
	t testing.TB
	*bufio.Reader
	id string
}

func (e *events) next() (o latest.Object) {
	e.t.Helper()
	for {
		line, err := e.ReadString('\n')
		if err != nil {
			e.t.Fatal(err)
		}
		if id, is := strings.CutPrefix(line, "id: "); is {
			e.id = strings.TrimSpace(id)
		}
		if data, is := strings.CutPrefix(line, "data: "); is {
			if err := json.Unmarshal([]byte(data), &o); err != nil {
				e.t.Fatal(err)
			}
			return o
		}
	}
}

func follow(l *archivetest.Lab, path string, headers ...string) *events {
	l.Helper()
	resp := l.Request(http.MethodGet, path, headers...)
	l.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		l.Fatalf("%s: %d %v", path, resp.StatusCode, resp.Header)
	}
	return &events{t: l, Reader: bufio.NewReader(resp.Body)}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	l := newLab(t, wire.InstrumentEntry{Instrument: "closed", Access: archivetest.Restricted},
		wire.InstrumentEntry{Instrument: "numbered", Naming: "{year}/{sequence}.jpg", Access: archivetest.Public})
	now := time.Now().UTC()
	first := l.Put(archivetest.Camera, "first.jpg", "first", observed(now))
	until(l, "/latest/allsky-1", "first")
	all, text := follow(l, "/latest/allsky-1/events"), follow(l, "/latest/allsky-1/events?type=text/csv")
	got := all.next()
	want := latest.Object{
		Format: 1, Instrument: archivetest.Camera, Path: "first.jpg", URL: "/archive/allsky-1/first.jpg", Digest: first.Digest, ETag: `"` + first.Digest.String() + `"`,
		Size: 5, MediaType: "image/jpeg", ObservedFrom: &now, ObservedTo: &now, ReceivedAt: first.ReceivedAt, TimeSource: wire.TimeSourceName,
	}
	if diff := cmp.Diff(want, got); diff != "" || all.id != first.Digest.String() {
		t.Errorf("id %s (-want +got):\n%s", all.id, diff)
	}
	l.Put(archivetest.Camera, "late.jpg", "late", observed(now.Add(-time.Hour)))
	second := l.Put(archivetest.Camera, "second.csv", "second", observed(now.Add(time.Millisecond)), typed("text/csv"))
	if got := all.next(); got.Path != "second.csv" {
		t.Errorf("then %s", got.Path)
	}
	if got := text.next(); got.Digest != second.Digest {
		t.Errorf("of the texts %s", got.Path)
	}
	again := follow(l, "/latest/allsky-1/events", "Last-Event-ID", all.id)
	third := l.Put(archivetest.Camera, "third.jpg", "third", observed(now.Add(time.Second)), func(r *wire.Record) { r.Version = 2 })
	if got := again.next(); got.Digest != third.Digest || got.URL != "/archive/allsky-1/third.jpg?version=2" {
		t.Errorf("who comes again is told of %s", got.URL)
	}

	// An object that has no address yet is available at the address of the latest.
	numbered := follow(l, "/latest/numbered/events")
	fourth := l.Put("numbered", "", "fourth", func(r *wire.Record) { r.Key = wire.RawKey(archivetest.Site, "numbered", r.ReceivedAt, r.Digest) })
	until(l, "/latest/numbered", "fourth")
	if got := numbered.next(); got.URL != "/latest/numbered?"+fourth.Digest.String()[:16] || l.Get(got.URL).Body != "fourth" {
		t.Errorf("what has no address is at %s", got.URL)
	}
	if at := l.Get("/latest/numbered").Header.Get("Content-Location"); at != "" {
		t.Errorf("it is at %s", at)
	}

	// A client that may no longer read the instrument gets no event.
	closed := follow(l, "/latest/closed/events", "Authorization", "Bearer "+archivetest.Token)
	l.Put("closed", "one.jpg", "one")
	if got := closed.next(); got.Path != "one.jpg" {
		t.Errorf("its reader is told of %s", got.Path)
	}
	s := *l.Snapshot()
	s.Readers = nil
	l.Set(&s)
	l.Put("closed", "two.jpg", "two")
	if rest, err := closed.ReadString('d'); err == nil {
		t.Errorf("who is no reader any more is told: %q", rest)
	}
}

// No time says whether a client has the latest: what was received before it may take
// its place.
func TestNotByTime(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	now := time.Now().UTC().Add(-time.Hour)
	received := func(after time.Duration) func(*wire.Record) {
		return func(r *wire.Record) { r.ReceivedAt = now.Add(after) }
	}
	l.Put(archivetest.Camera, "first.jpg", "first", received(0))
	until(l, "/latest/allsky-1", "first")
	second := l.Put(archivetest.Camera, "second.jpg", "second", received(time.Minute))
	if at := until(l, "/latest/allsky-1", "second").Header.Get("Last-Modified"); at != "" {
		t.Errorf("the latest changed at %s", at)
	}
	had := second.ReceivedAt.Truncate(time.Second).Format(http.TimeFormat)
	at := now.Add(2 * time.Minute)
	second.State, second.Reason, second.RetractedAt = wire.StateRetracted, "a person is in it", &at
	l.Announce(archivetest.Camera, second)
	until(l, "/latest/allsky-1", "first")
	if a := l.Get("/latest/allsky-1", "If-Modified-Since", had); a.Status != http.StatusOK || a.Body != "first" {
		t.Errorf("who has what was retracted: %d %q", a.Status, a.Body)
	}
	if a := l.Get("/latest/allsky-1", "Range", "bytes=1-", "If-Range", now.Truncate(time.Second).Format(http.TimeFormat)); a.Status != http.StatusOK {
		t.Errorf("a range by time: %d %q", a.Status, a.Body)
	}
	if a := l.Get("/archive/allsky-1/first.jpg", "If-Modified-Since", had); a.Status != http.StatusNotModified {
		t.Errorf("its own URL by time: %d", a.Status)
	}
}

// An anonymous reader is given the newest that is not under embargo, and what is hidden decides
// nothing.
func TestEmbargo(t *testing.T) {
	t.Parallel()
	l := newLab(t, wire.InstrumentEntry{Instrument: "later",
		Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, EmbargoMillis: time.Hour.Milliseconds(), Readers: []string{archivetest.Reader}}})
	now := time.Now().UTC()
	l.Put("later", "free.jpg", "free", observed(now.Add(-2*time.Hour)))
	l.Put("later", "older.jpg", "older", observed(now.Add(-3*time.Hour)))
	l.Put("later", "hidden.csv", "hidden", observed(now), typed("text/csv"))
	until(l, "/latest/later", "hidden", "Authorization", "Bearer "+archivetest.Token)
	for _, c := range []struct {
		path, accept, want string
		status             int
	}{
		{"/latest/later", "*/*", "free", 200}, {"/latest/later", "text/csv, */*;q=0.5", "free", 200}, {"/latest/later?type=image/jpeg", "*/*", "free", 200},
		{"/latest/later?type=text/csv", "*/*", "", 404}, {"/latest/later", "text/csv", "", 406}, {"/latest/later", "video/mp4", "", 406},
		{"/latest/later", "text/html", "free", 200},
	} {
		if a := l.Get(c.path, "Accept", c.accept); a.Status != c.status || c.want != "" && a.Body != c.want {
			t.Errorf("%s, %s: %d %q, want %d %q", c.path, c.accept, a.Status, a.Body, c.status, c.want)
		}
	}
}
