// SPDX-License-Identifier: Apache-2.0

package wis2_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/hub"
	"github.com/substorm/substorm/feed-server/wis2"
	"github.com/substorm/substorm/internal/wire"
)

func newLab(t *testing.T, more ...wire.InstrumentEntry) *archivetest.Lab {
	t.Helper()
	l := archivetest.New(t, more...)
	h := hub.New(hub.Config{JetStream: l.JetStream, Stream: wire.NoticeStream(archivetest.Site), Budget: hub.NewBudget(1 << 20), Logger: l.Logger})
	go h.Run(t.Context())
	l.Open(wis2.NewEvents(wis2.Config{
		Site: archivetest.Site, Registry: l.Snapshot, Hub: func(string) *hub.Hub { return h }, Slots: semaphore.NewWeighted(4), AccessCheck: l.AccessCheck, Logger: l.Logger,
	}).Endpoints())
	s := *l.Snapshot()
	s.Feeds = map[string]wire.FeedEntry{}
	for name, instruments := range map[string][]string{"aurora": {archivetest.Camera, "later"}, "secret": {"closed"}} {
		s.Feeds[name] = wire.FeedEntry{Feed: name, Notices: wire.NoticeStream(archivetest.Site), Instruments: instruments}
	}
	l.Set(&s)
	return l
}

// events reads Server-Sent Events.
type events struct {
	t testing.TB
	*bufio.Reader
	id, kind string
}

func follow(l *archivetest.Lab, path string, headers ...string) *events {
	l.Helper()
	resp := l.Request(http.MethodGet, path, headers...)
	l.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		l.Fatalf("%s: %d", path, resp.StatusCode)
	}
	e := &events{t: l, Reader: bufio.NewReader(resp.Body)}
	e.line("retry: ")
	return e
}

func (e *events) line(prefix string) string {
	e.t.Helper()
	for {
		line, err := e.ReadString('\n')
		if err != nil {
			e.t.Fatal(err)
		}
		if text, is := strings.CutPrefix(line, "id: "); is {
			e.id = strings.TrimSpace(text)
		}
		if text, is := strings.CutPrefix(line, "event: "); is {
			e.kind = strings.TrimSpace(text)
		}
		if text, is := strings.CutPrefix(line, prefix); is {
			return strings.TrimSpace(text)
		}
	}
}

func (e *events) next() (m wis2.Message) {
	e.t.Helper()
	text := e.line("data: ")
	if e.kind != "notification" {
		e.t.Fatalf("%s: %s", e.kind, text)
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		e.t.Fatal(err)
	}
	return m
}

func TestEvents(t *testing.T) {
	t.Parallel()
	l := newLab(t, wire.InstrumentEntry{Instrument: "closed", Access: archivetest.Restricted}, wire.InstrumentEntry{Instrument: "other", Access: archivetest.Public},
		wire.InstrumentEntry{Instrument: "later", Access: &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, EmbargoMillis: time.Hour.Milliseconds(), Readers: []string{archivetest.Reader}}})
	all := follow(l, "/wis2/aurora/events")
	token := []string{"Authorization", "Bearer " + archivetest.Token}
	readers := follow(l, "/wis2/aurora/events", token...)
	from := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	to := from.Add(time.Minute)
	first := l.Put(archivetest.Camera, "2026/a b.jpg", "first", func(r *wire.Record) { r.ObservedFrom, r.ObservedTo = &from, &to })
	got := all.next()
	if _, err := time.Parse(time.RFC3339, got.Properties.PubTime); err != nil || !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(got.ID) {
		t.Errorf("published at %s as %s", got.Properties.PubTime, got.ID)
	}
	want := wis2.Message{
		ID: got.ID, ConformsTo: []string{"http://wis.wmo.int/spec/wnm/1/conf/core"}, Type: "Feature",
		Properties: wis2.Properties{
			PubTime: got.Properties.PubTime, DataID: "thule/allsky-1/2026/a b.jpg", MetadataID: "urn:wmo:md:thule:allsky-1", Producer: "thule", Cache: true,
			Start: "2026-11-21T12:00:00Z", End: "2026-11-21T12:01:00Z",
			Integrity: wis2.Integrity{Method: "sha256", Value: base64.StdEncoding.EncodeToString(first.Digest[:])},
		},
		Links: []wis2.Link{{Href: l.URL + "/archive/allsky-1/2026/a%20b.jpg", Rel: "canonical", Type: "image/jpeg", Length: 5},
			{Href: "https://spdx.org/licenses/CC-BY-4.0.html", Rel: "license", Type: "text/html"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	l.Wait(first)
	if body := l.Get(strings.TrimPrefix(got.Links[0].Href, l.URL)).Body; body != "first" {
		t.Errorf("behind its link: %q", body)
	}
	place := all.id

	l.Put("other", "o.jpg", "other")
	l.Put("later", "l.jpg", "later")
	second := l.Put(archivetest.Camera, "2026/a b.jpg", "second", func(r *wire.Record) { r.Key, r.Version, r.Supersedes = "o/thule/allsky-1/v/2/x", 2, first.ID })
	if got := all.next(); got.Links[0].Rel != "update" || got.Links[0].Href != l.URL+"/archive/allsky-1/2026/a%20b.jpg?version=2" || string(got.Properties.DateTime) != "null" {
		t.Errorf("then %+v", got)
	}
	old, at := first, time.Now().UTC()
	old.State, old.PurgedAt, old.Reason, old.Outdated = wire.StatePurged, &at, "a person is in it", true
	l.Announce(archivetest.Camera, old) // no deletion is announced for the link of the current version
	gone := second
	gone.State, gone.Reason = wire.StateRetracted, "a lamp"
	l.Announce(archivetest.Camera, gone)
	if again := all.next(); again.Links[0].Rel != "deletion" || again.ID == got.ID || !strings.HasSuffix(again.Links[0].Href, "?version=2") {
		t.Errorf("then %+v", again)
	}
	var ids []string
	for range 4 {
		m := readers.next()
		ids = append(ids, m.Links[0].Rel+" "+m.Properties.DataID)
	}
	if diff := cmp.Diff([]string{"canonical thule/allsky-1/2026/a b.jpg", "canonical thule/later/l.jpg", "update thule/allsky-1/2026/a b.jpg", "deletion thule/allsky-1/2026/a b.jpg"}, ids); diff != "" {
		t.Errorf("for its reader (-want +got):\n%s", diff)
	}
	for _, again := range []*events{follow(l, "/wis2/aurora/events", "Last-Event-ID", place), follow(l, "/wis2/aurora/events?resume="+place)} {
		if got := again.next(); got.Links[0].Rel != "update" {
			t.Errorf("behind its place there is %+v", got)
		}
	}

	for path, want := range map[string]int{"/wis2/secret/events": 401, "/wis2/none/events": 404, "/wis2/aurora/events?resume=x": 400,
		"/wis2/aurora/events?resume=" + strings.Replace(place, "-", "-9", 1): 400} {
		if a := l.Get(path); a.Status != want {
			t.Errorf("%s: %d, want %d", path, a.Status, want)
		}
	}
	closed := follow(l, "/wis2/secret/events", token...)
	l.Put("closed", "c.jpg", "closed")
	if got := closed.next(); got.Links[0].Security["default"].Scheme != "basic" || got.Properties.Cache {
		t.Errorf("of what is not for everybody: %+v", got)
	}
	s := *l.Snapshot()
	s.Readers = nil
	l.Set(&s)
	l.Put("closed", "d.jpg", "closed again")
	if rest, err := closed.ReadString('d'); err == nil {
		t.Errorf("who is no reader any more is told: %q", rest)
	}
}

// Messages that have left the stream are reported as missing, also of a stream that was recreated.
func TestGap(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	all := follow(l, "/wis2/aurora/events")
	for i := range 5 {
		l.Put(archivetest.Camera, fmt.Sprint(i), fmt.Sprint(i))
	}
	all.next()
	place := all.id
	s, err := l.JetStream.Stream(t.Context(), wire.NoticeStream(archivetest.Site))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := l.Put(archivetest.Camera, "last", "last")
	l.Wait(last)
	h := hub.New(hub.Config{JetStream: l.JetStream, Stream: wire.NoticeStream(archivetest.Site), Budget: hub.NewBudget(1 << 20), Logger: l.Logger}) // another replica
	go h.Run(t.Context())
	l.Open(wis2.NewEvents(wis2.Config{Site: archivetest.Site, Registry: l.Snapshot, Hub: func(string) *hub.Hub { return h }, Slots: semaphore.NewWeighted(4), AccessCheck: l.AccessCheck, Logger: l.Logger}).Endpoints())
	again := follow(l, "/wis2/aurora/events", "Last-Event-ID", place)
	if got := again.line("data: "); got != `{"count":4,"reason":"Retention"}` || again.kind != "gap" {
		t.Errorf("%s: %s", again.kind, got)
	}
	if got := again.next(); got.Properties.DataID != "thule/allsky-1/last" {
		t.Errorf("then %s", got.Properties.DataID)
	}
}

// TestExample: the example of docs/how-to/wis2.md is what New makes.
func TestExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/how-to/wis2.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(text)
	if found == nil {
		t.Fatal("there is none")
	}
	at, altitude := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), int32(130)
	r := wire.Record{ID: "o/thule/allsky-1/r/1", Key: "o/thule/allsky-1/r/1", Path: "2026/11/21/1200.jpg", Size: 200_000, State: wire.StateCurrent, ReceivedAt: at.Add(2 * time.Second), ObservedTo: &at, MediaType: "image/jpeg"}
	in := wire.InstrumentEntry{Instrument: "allsky-1", Access: archivetest.Public, Rights: &wire.RightsEntry{License: "CC-BY-4.0"},
		About: &wire.AboutEntry{Latitude: "62.82", Longitude: "-92.11", AltitudeMeters: &altitude}}
	got, err := json.MarshalIndent(wis2.New("https://archive.example.org", in, wire.Notice{Site: "thule", Instrument: "allsky-1", Record: r}, at.Add(3*time.Second)), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(found[1])), string(got)); diff != "" {
		t.Errorf("(-docs +New):\n%s\n%s", diff, got)
	}
}

// Objects that came late are announced to clients that follow a Feed with backfill.
func TestEventsOfBackfill(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	s := *l.Snapshot()
	s.Feeds = maps.Clone(s.Feeds)
	s.Feeds["all"] = wire.FeedEntry{Feed: "all", Notices: wire.NoticeStream(archivetest.Site), Instruments: []string{archivetest.Camera}, Backfill: true}
	l.Set(&s)
	live, all := follow(l, "/wis2/aurora/events"), follow(l, "/wis2/all/events")
	observed := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	l.Put(archivetest.Camera, "late.jpg", "late", func(r *wire.Record) { r.ObservedFrom, r.ObservedTo, r.Backfill = &observed, &observed, true })
	l.Put(archivetest.Camera, "live.jpg", "live")
	for name, c := range map[string]struct {
		events *events
		want   []string
	}{"aurora": {live, []string{"live.jpg"}}, "all": {all, []string{"late.jpg", "live.jpg"}}} {
		for _, want := range c.want {
			if got := c.events.next().Properties.DataID; got != "thule/allsky-1/"+want {
				t.Errorf("Feed %s tells of %s, want %s", name, got, want)
			}
		}
	}
}
