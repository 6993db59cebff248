// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/bundle"
	"github.com/substorm/substorm/feed-server/mirror"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

// storm is a time long ago, on day old.
var storm = time.Date(2015, 3, 17, 12, 0, 0, 0, time.UTC)

const old = "2015-03-17"

func newLab(t *testing.T, more ...wire.InstrumentEntry) *archivetest.Lab {
	t.Helper()
	l := archivetest.New(t, more...)
	bundles := bundle.New(bundle.Config{Site: archivetest.Site, Catalog: l.Catalog, Store: l.Store, AccessCheck: l.AccessCheck, Logger: l.Logger})
	l.Open(mirror.New(mirror.Config{Site: archivetest.Site, Catalog: l.Catalog, AccessCheck: l.AccessCheck, JetStream: l.JetStream, Bundles: bundles.AtOnce}).Endpoints(), bundles.Endpoints())
	return l
}

func at(received time.Time) func(*wire.Record) {
	return func(r *wire.Record) { r.ReceivedAt = received.UTC() }
}

// post asks a question of lines.
func post(l *archivetest.Lab, path string, questions ...any) (status int, body []byte) {
	l.Helper()
	var lines bytes.Buffer
	for _, q := range questions {
		if err := json.NewEncoder(&lines).Encode(q); err != nil {
			l.Fatal(err)
		}
	}
	resp, err := http.Post(l.URL+path, mirrorindex.MediaLines, &lines)
	if err != nil {
		l.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		l.Fatal(err)
	}
	return resp.StatusCode, body
}

// lines are the lines of an answer, which must be complete.
func lines[L any](l *archivetest.Lab, path string, questions ...any) []L {
	l.Helper()
	status, body := post(l, path, questions...)
	if status != http.StatusOK || !bytes.HasSuffix(body, []byte("{\"end\":true}\n")) {
		l.Fatalf("%s: %d %s", path, status, body)
	}
	var all []L
	for d := json.NewDecoder(bytes.NewReader(body)); ; {
		var line L
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			return all[:len(all)-1]
		} else if err != nil {
			l.Fatal(err)
		}
		all = append(all, line)
	}
}

func root(l *archivetest.Lab) (mirrorindex.Root, string) {
	l.Helper()
	a := l.Get(mirrorindex.RootPath)
	var r mirrorindex.Root
	if err := json.Unmarshal([]byte(a.Body), &r); err != nil || a.Status != http.StatusOK {
		l.Fatalf("%d %v %s", a.Status, err, a.Body)
	}
	return r, a.Header.Get("ETag")
}

func list(l *archivetest.Lab, day wire.Day, have *mirrorindex.Sum) (head mirrorindex.ListLine, all []mirrorindex.Entry) {
	l.Helper()
	answer := lines[mirrorindex.ListLine](l, mirrorindex.ListsPath, mirrorindex.ListQuestion{Instrument: archivetest.Camera, Day: day, Have: have})
	for _, line := range answer[1:] {
		all = append(all, *line.Entry)
	}
	return answer[0], all
}

func paths(all []mirrorindex.Entry) (paths []string) {
	for _, e := range all {
		paths = append(paths, strings.TrimSpace(e.Path+" "+string(e.State)))
	}
	return paths
}

// objects returns what a bundle holds, by path.
func objects(l *archivetest.Lab, questions ...any) map[string]string {
	l.Helper()
	_, body := post(l, mirrorindex.ObjectsPath, questions...)
	all, whole := map[string]string{}, false
	for r := tar.NewReader(bytes.NewReader(body)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) && whole {
			return all
		}
		if err != nil {
			l.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			l.Fatal(err)
		}
		name := strings.TrimPrefix(h.Name, archivetest.Site+"/")
		if whole = name == mirrorindex.EndName; !whole {
			all[strings.TrimPrefix(name, archivetest.Camera+"/")] = string(data)
		}
	}
}

// A tag changes with the content below it, and nothing else is asked for.
func TestIndex(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	newest := wire.Day(today.Format(time.DateOnly))
	l.Put(archivetest.Camera, "b/1.jpg", "one", at(storm))
	two := l.Put(archivetest.Camera, "b/2.jpg", "two", at(storm.Add(time.Minute)))
	l.Wait(l.Put(archivetest.Camera, "now/1 æ.jpg", "four", at(today.Add(time.Second))))
	first, tag := root(l)
	if len(first.Instruments) != 1 || first.Site != archivetest.Site || first.Format != mirrorindex.Format {
		t.Fatalf("root: %+v", first)
	}
	if a := l.Get(mirrorindex.RootPath, "If-None-Match", tag); a.Status != http.StatusNotModified {
		t.Errorf("nothing changed: %d", a.Status)
	}
	days := lines[mirrorindex.DaysLine](l, mirrorindex.DaysPath, mirrorindex.DaysQuestion{Instrument: archivetest.Camera})
	if len(days) != 3 || days[0].Instrument != archivetest.Camera || days[0].Rights.DOI != "10.5555/thule" || days[1].Month != "2015-03" || days[1].Entries != 2 || days[2].Day != newest {
		t.Fatalf("days: %+v", days)
	}
	month := lines[mirrorindex.DaysLine](l, mirrorindex.DaysPath, mirrorindex.DaysQuestion{Instrument: archivetest.Camera, Month: "2015-03"})
	if len(month) != 2 || month[1].Day != old || month[1].Bytes != 6 {
		t.Fatalf("month: %+v", month)
	}
	head, all := list(l, newest, nil)
	if head.More || head.Tag != days[2].Tag || !slices.Equal(paths(all), []string{"now/1 æ.jpg"}) {
		t.Fatalf("list: %+v %v", head, paths(all))
	}
	sum := mirrorindex.SumOf(all)

	l.Wait(l.Put(archivetest.Camera, "now/2.jpg", "five", at(today.Add(2*time.Second))))
	if second, other := root(l); second.Instruments[0].Tag == first.Instruments[0].Tag || other == tag {
		t.Error("a new object changes no tag")
	}
	after := lines[mirrorindex.DaysLine](l, mirrorindex.DaysPath, mirrorindex.DaysQuestion{Instrument: archivetest.Camera})
	if after[1].Tag != days[1].Tag || after[2].Tag == days[2].Tag {
		t.Errorf("other tags: %+v, %+v", days, after)
	}
	head, more := list(l, newest, &sum)
	if !head.More || !slices.Equal(paths(more), []string{"now/2.jpg"}) {
		t.Errorf("what is new: %+v %v", head, paths(more))
	}
	if got := objects(l, mirrorindex.ObjectsQuestion{Instrument: archivetest.Camera, Day: newest, IDs: []string{more[0].ID}},
		mirrorindex.ObjectsQuestion{Instrument: archivetest.Camera, Day: old}); !cmp.Equal(got, map[string]string{"now/2.jpg": "five", "b/1.jpg": "one", "b/2.jpg": "two"}) {
		t.Errorf("objects: %v", got)
	}

	_, before := list(l, old, nil)
	two.State, two.Reason = wire.StateRetracted, "a lamp"
	l.Announce(archivetest.Camera, two)
	l.Until("it is gone", func() bool { return l.Get("/archive/allsky-1/b/2.jpg").Status == http.StatusGone })
	sum = mirrorindex.SumOf(before)
	head, all = list(l, old, &sum)
	if head.More || !slices.Equal(paths(all), []string{"b/1.jpg", "b/2.jpg Retracted"}) || all[1].Reason != "a lamp" {
		t.Errorf("what was retracted: %+v %v", head, all)
	}
	if got := objects(l, mirrorindex.ObjectsQuestion{Instrument: archivetest.Camera, Day: old, IDs: []string{two.ID}}); len(got) != 0 {
		t.Errorf("what was retracted is sent: %v", got)
	}
}

// Data under embargo is hidden, and shows once the embargo ends.
func TestEmbargo(t *testing.T) {
	t.Parallel()
	const name = "fresh-1"
	l := newLab(t, wire.InstrumentEntry{Instrument: name, UID: name, Generation: 1, Access: &wire.AccessEntry{Archive: wire.AccessPublic, EmbargoMillis: time.Hour.Milliseconds()}})
	now := time.Now().UTC()
	l.Put(name, "old.csv", "1", at(now.Add(-2*time.Hour)))
	l.Wait(l.Put(name, "new.csv", "2", at(now)))
	var told []string
	for _, day := range slices.Compact([]string{now.Add(-2 * time.Hour).Format(time.DateOnly), now.Format(time.DateOnly)}) {
		for _, line := range lines[mirrorindex.ListLine](l, mirrorindex.ListsPath, mirrorindex.ListQuestion{Instrument: name, Day: wire.Day(day)}) {
			if line.Entry != nil {
				told = append(told, line.Path)
			}
		}
	}
	if !slices.Equal(told, []string{"old.csv"}) {
		t.Errorf("told of %q", told)
	}
	// A tag changes with each minute, and not when something arrives under embargo.
	tags := func() (of string, minute time.Time) {
		r, _ := root(l)
		for _, line := range r.Instruments {
			if line.Instrument == name {
				of = line.Tag
			}
		}
		head := lines[mirrorindex.ListLine](l, mirrorindex.ListsPath, mirrorindex.ListQuestion{Instrument: name, Day: wire.DayOf(now)})
		return of + " " + head[0].Tag, r.Now.Truncate(time.Minute)
	}
	for try := 0; ; try++ {
		before, from := tags()
		l.Wait(l.Put(name, fmt.Sprintf("newer-%d.csv", try), "3", at(now.Add(time.Duration(try)*time.Millisecond))))
		l.List()
		after, to := tags()
		if !to.Equal(from) {
			continue
		}
		if before != after || before == " " {
			t.Errorf("the tags change from %s to %s with what nobody may see", before, after)
		}
		break
	}
}

// Days with data under embargo have no figures, because figures count all their objects; days with no other data are omitted. A mirror that
// asks by observed time finds its objects all the same.
func TestFiguresUnderEmbargo(t *testing.T) {
	t.Parallel()
	const name, partly, none = "fresh-1", "fresh-2", "fresh-3"
	now := time.Now().UTC()
	under := func(name string, embargo time.Duration) wire.InstrumentEntry {
		return wire.InstrumentEntry{Instrument: name, UID: name, Generation: 1, Access: &wire.AccessEntry{Archive: wire.AccessPublic, EmbargoMillis: embargo.Milliseconds(), Readers: []string{archivetest.Reader}}}
	}
	l := newLab(t, under(name, 1000*time.Hour), under(partly, 24*80*time.Hour), under(none, time.Hour))
	observed := func(when time.Time) func(*wire.Record) {
		return func(r *wire.Record) { r.ObservedFrom, r.ObservedTo = &when, &when }
	}
	recent, ripe := now.Add(-2*time.Minute), now.AddDate(0, 0, -300)
	l.Put(name, "new.csv", "secret", at(now), observed(recent))
	l.Put(partly, "old.csv", "old", at(now), observed(ripe))
	l.Put(partly, "new.csv", "secret", at(now), observed(recent))
	l.Put(partly, "month/old.csv", "old", at(now.AddDate(0, 0, -70)), observed(ripe))
	l.Put(partly, "month/new.csv", "secret", at(now.AddDate(0, 0, -70)), observed(recent.AddDate(0, 0, -70)))
	l.Wait(l.Put(none, "old.csv", "old", at(storm), observed(storm)))
	l.List()
	days := func(name, token string) (all []mirrorindex.DaysLine) {
		t.Helper()
		body := fmt.Sprintf(`{"instrument":%q}`, name)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.URL+mirrorindex.DaysPath, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for d := json.NewDecoder(resp.Body); ; {
			var line mirrorindex.DaysLine
			if err := d.Decode(&line); err != nil {
				t.Fatal(err)
			}
			if line.End {
				return all
			}
			if line.Instrument == "" {
				all = append(all, line)
			}
		}
	}
	if told := days(name, ""); len(told) > 0 {
		t.Errorf("a day of which all is under embargo: %+v", told)
	}
	told := days(partly, "")
	if len(told) != 2 || told[0].Month == "" || told[1].Day == "" {
		t.Fatalf("days with something: %+v", told)
	}
	for _, line := range told {
		if line.Entries != 0 || line.Bytes != 0 || !line.ObservedFrom.Before(ripe) || line.ObservedTo.Sub(now) < -time.Minute || line.Tag == "" {
			t.Errorf("%+v", line)
		}
	}
	if told := days(none, ""); len(told) != 1 || told[0].Entries != 1 || told[0].Bytes != 3 || !told[0].ObservedTo.Equal(storm) {
		t.Errorf("nothing of it is under embargo any more: %+v", told)
	}
	for _, line := range days(partly, archivetest.Token) {
		if line.Entries != 2 || line.Bytes != 9 || !line.ObservedFrom.Equal(ripe) || line.ObservedTo.After(now) {
			t.Errorf("to a reader: %+v", line)
		}
	}
}

// leaving is a catalog whose client goes away when it asks for the first day.
type leaving struct {
	mirror.Catalog
	leave func()
	days  int
}

func (c *leaving) Day(ctx context.Context, instrument string, day wire.Day) (*catalog.Day, error) {
	c.days++
	defer c.leave()
	return c.Catalog.Day(ctx, instrument, day)
}

// Nothing is summed up for a client that is gone.
func TestGone(t *testing.T) {
	t.Parallel()
	l := archivetest.New(t)
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
	ctx, cancel := context.WithCancel(t.Context())
	c := &leaving{Catalog: l.Catalog, leave: cancel}
	serve := mirror.New(mirror.Config{Site: archivetest.Site, Catalog: c, AccessCheck: l.AccessCheck}).Endpoints()["POST "+mirrorindex.ListsPath]
	var questions strings.Builder
	for n := range 50 {
		fmt.Fprintf(&questions, `{"instrument":%q,"day":%q,"have":{"count":1,"last":"2026-11-21T00:00:00Z"}}`+"\n", archivetest.Camera, wire.DayOf(storm.AddDate(0, 0, n)))
	}
	defer func() {
		if err, is := recover().(error); !is || !errors.Is(err, http.ErrAbortHandler) || c.days != 1 {
			t.Errorf("%d days were read, %v", c.days, err)
		}
	}()
	serve(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, mirrorindex.ListsPath, strings.NewReader(questions.String())))
}

// If there is no memory left for what compresses, answers are not compressed.
func TestCompressors(t *testing.T) {
	t.Parallel()
	l := archivetest.New(t)
	of := func(memory int64) map[string]http.HandlerFunc {
		return mirror.New(mirror.Config{Site: archivetest.Site, Catalog: l.Catalog, AccessCheck: l.AccessCheck, Memory: memory}).Endpoints()
	}
	for memory, want := range map[int64]string{1: "", 5 << 20: "zstd"} {
		serve := of(memory)["POST "+mirrorindex.DaysPath]
		for range 3 { // what one took is given back
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, mirrorindex.DaysPath, strings.NewReader(`{"instrument":"`+archivetest.Camera+`"}`))
			r.Header.Set("Accept-Encoding", "zstd")
			serve(w, r)
			if got := w.Header().Get("Content-Encoding"); w.Code != http.StatusOK || got != want || w.Body.Len() == 0 {
				t.Errorf("with %d bytes: %d, %q", memory, w.Code, got)
			}
		}
	}
}

// The declaration of an instrument is passed along, except for its readers.
func TestDeclared(t *testing.T) {
	t.Parallel()
	about := &wire.AboutEntry{Type: "Magnetometer", Latitude: "76.5"}
	l := newLab(t, wire.InstrumentEntry{
		Instrument: "mag-1", UID: "mag", Generation: 1, MediaType: "text/csv", Station: "nord", About: about,
		Access: &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessPublic, EmbargoMillis: 1000, Readers: []string{"uni"}},
	}, wire.InstrumentEntry{Instrument: "all-1", UID: "all", Generation: 1})
	for _, want := range []mirrorindex.DaysLine{
		{
			Instrument: "mag-1", MediaType: "text/csv", Station: "nord", About: about,
			Access: &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessPublic, EmbargoMillis: 1000},
		},
		{Instrument: "all-1", Gone: true}, // for anonymous clients
		{Instrument: "none", Gone: true, Absent: true},
	} {
		if got := lines[mirrorindex.DaysLine](l, mirrorindex.DaysPath, mirrorindex.DaysQuestion{Instrument: want.Instrument}); !cmp.Equal(got, []mirrorindex.DaysLine{want}) {
			t.Error(cmp.Diff([]mirrorindex.DaysLine{want}, got))
		}
	}
	if l.Snapshot().Instruments["mag-1"].Access.Readers == nil {
		t.Error("the registry's readers are gone")
	}
}

// Objects that were pulled from another Site are not offered to any client, not even by name.
func TestGuests(t *testing.T) {
	t.Parallel()
	entry := wire.GuestEntry{Origin: "svalbard", Instrument: "cam-1", Partner: "svalbard", Access: archivetest.Public}
	guest := entry.Entry()
	l := newLab(t, guest)
	origin := wire.Origin{Site: "svalbard", ID: wire.NamedKey("svalbard", "cam-1", "1.jpg", 1)}
	r := l.Put(guest.Instrument, "1.jpg", "one", at(storm), func(r *wire.Record) {
		r.Origin, r.Key = &origin, origin.ObjectID(archivetest.Site, guest.Instrument, r.ReceivedAt, r.Digest)
	})
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "own", at(storm)))
	l.Wait(r)
	if a := l.Get("/archive/svalbard_cam-1/1.jpg"); a.Status != http.StatusOK || a.Body != "one" {
		t.Fatalf("it is not in the archive: %d %s", a.Status, a.Body)
	}
	for _, reader := range []string{"", archivetest.Token} {
		a := l.Get(mirrorindex.RootPath, "Authorization", "Bearer "+reader)
		if a.Status == http.StatusOK && strings.Contains(a.Body, "svalbard") || reader != "" && a.Status != http.StatusOK {
			t.Errorf("root for %q: %d %s", reader, a.Status, a.Body)
		}
	}
	if r, _ := root(l); len(r.Instruments) != 1 {
		t.Errorf("root: %+v", r)
	}
	if got := lines[mirrorindex.DaysLine](l, mirrorindex.DaysPath, mirrorindex.DaysQuestion{Instrument: guest.Instrument}); len(got) != 1 || !got[0].Gone {
		t.Errorf("days: %+v", got)
	}
	if got := lines[mirrorindex.ListLine](l, mirrorindex.ListsPath, mirrorindex.ListQuestion{Instrument: guest.Instrument, Day: old}); len(got) != 1 || !got[0].Gone {
		t.Errorf("list: %+v", got)
	}
	ask := mirrorindex.ObjectsQuestion{Instrument: guest.Instrument, Day: old}
	if got := objects(l, ask, mirrorindex.ObjectsQuestion{Instrument: archivetest.Camera, Day: old}); !cmp.Equal(got, map[string]string{"1.jpg": "own"}) {
		t.Errorf("objects: %v", got)
	}
	ask.IDs = []string{r.ID}
	if got := objects(l, ask); len(got) != 0 {
		t.Errorf("objects by ID: %v", got)
	}
}

// Objects of a day that several lines name come once each, however often they are named.
func TestObjectsNamedAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var ids []string
	for _, path := range []string{"a.jpg", "b.jpg", "c.jpg"} {
		r := l.Put(archivetest.Camera, path, path, at(storm))
		l.Wait(r)
		ids = append(ids, r.ID)
	}
	var questions []any
	for i := range 60 {
		questions = append(questions, mirrorindex.ObjectsQuestion{Instrument: archivetest.Camera, Day: old, IDs: []string{ids[i%2], ids[0]}})
	}
	status, body := post(l, mirrorindex.ObjectsPath, questions...)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	var names []string
	for in := tar.NewReader(bytes.NewReader(body)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	slices.Sort(names)
	if want := []string{"thule/allsky-1/a.jpg", "thule/allsky-1/b.jpg", "thule/bundle.d/end.json"}; !slices.Equal(names, want) {
		t.Errorf("the bundle has %q, want %q", names, want)
	}
}

func TestBadQuestions(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{mirrorindex.DaysPath, "", 400, "asks for nothing"},
		{mirrorindex.DaysPath, "{", 400, "line 1 of the body"},
		{mirrorindex.ListsPath, `{"instrument":"a"} []`, 400, "line 2 of the body"},
		{mirrorindex.DaysPath, `{"instrument":"a","month":"2026-13"}`, 400, "not a month"},
		{mirrorindex.ListsPath, `{"instrument":"a","day":"x"}`, 200, `"gone":true`},
		{mirrorindex.DaysPath, `{"instrument":"../a"}`, 200, `"gone":true`},
		{mirrorindex.ListsPath, fmt.Sprintf(`{"instrument":%q,"day":"../../x"}`, archivetest.Camera), 200, `"gone":true`},
		{mirrorindex.ObjectsPath, `{"instrument":"a","day":"x"}`, 200, `"objects":0`},
		{mirrorindex.DaysPath, `{"instrument":"a"}{"instrument":"a","month":"2026-01"}{"instrument":"a"}`, 400, "line 3 of the body asks for a, as a line before it does"},
		{mirrorindex.DaysPath, strings.Repeat(`{"instrument":"a","month":"2026-01"}`, 400), 400, "line 2 of the body asks for a, 2026-01,"},
		{mirrorindex.ListsPath, strings.Repeat(`{"instrument":"a","day":"2026-01-01"}`, 330), 400, "ask for each once"},
		{mirrorindex.ListsPath, `{"instrument":"a","day":"2026-01-01","have":{"count":1}}{"instrument":"a","day":"2026-01-01"}`, 400, "ask for each once"},
		{mirrorindex.ObjectsPath, strings.Repeat(`{"instrument":"a","day":"2026-01-01"}`, 330), 400, "ask for each once"},
		{mirrorindex.ObjectsPath, `{"instrument":"a","day":"2026-01-01","ids":["x"]}{"instrument":"a","day":"2026-01-01","below":7}`, 400, "ask for each once"},
	} {
		resp, err := http.Post(l.URL+c.path, mirrorindex.MediaLines, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || !strings.Contains(string(body), c.says) {
			t.Errorf("%s %s: %d %s", c.path, c.body, resp.StatusCode, body)
		}
	}
	if a := l.Get(mirrorindex.DaysPath); a.Status == http.StatusOK {
		t.Error("GET is answered where a question is posted")
	}
}
