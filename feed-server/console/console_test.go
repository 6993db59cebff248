// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
)

// until asks for the page until it is right.
func until(l *archivetest.Lab, what, path string, right func(body string) bool, headers ...string) archivetest.Answer {
	l.Helper()
	var a archivetest.Answer
	l.Until(what, func() bool {
		a = l.Get(path, headers...)
		return a.Status == http.StatusOK && right(a.Body)
	})
	return a
}

var token = []string{"Authorization", "Bearer " + archivetest.Token}

// stateOn is what the page says of an instrument.
func stateOn(body, name string) string {
	found := regexp.MustCompile(`<tr data-name="` + name + `" data-state="(\w+)"`).FindStringSubmatch(body)
	if found == nil {
		return ""
	}
	return found[1]
}

// The page says of each instrument what the operator's condition DataFlowing does.
func TestStates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	dark := sends("dark", "gillam", time.Minute, archivetest.Public)
	dark.Observes = &wire.ObservesEntry{Mode: wire.ObservesDaily, From: now.UTC().Add(3 * time.Hour).Format("15:04"), To: now.UTC().Add(4 * time.Hour).Format("15:04")}
	maintained, imported, elsewhere := sends("maintained", "", time.Minute, archivetest.Public), sends("imported", "", 0, archivetest.Public), sends("elsewhere", "", time.Minute, archivetest.Public)
	maintained.Maintenance, imported.Listeners, elsewhere.Gateway = true, nil, "south"
	embargoed := sends("embargoed", "", time.Minute, &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic, EmbargoMillis: time.Hour.Milliseconds(), Readers: []string{archivetest.Reader}})
	l := newLab(t, sends("flows", "gillam", time.Hour, archivetest.Public), sends("late", "gillam", time.Minute, archivetest.Public), sends("new", "gillam", time.Minute, archivetest.Public),
		dark, maintained, imported, elsewhere, embargoed)
	l.Report("flows", now.Add(-90*time.Minute))
	for name, last := range map[string]time.Time{"late": now.Add(-123 * time.Second), "dark": now.Add(-24 * time.Hour), "maintained": now, "elsewhere": now, "embargoed": now} {
		l.Report(name, last)
	}
	want := map[string]string{"flows": "Flowing", "late": "Overdue", "new": "NeverSeen", "dark": "NotObserving", "maintained": "NotObserving",
		"imported": "NoListeners", "elsewhere": "NoReport", "embargoed": "UnderEmbargo"}
	a := until(l, "the page has the reports", "/", func(body string) bool { return stateOn(body, "flows") == "Flowing" })
	for name, state := range want {
		if got := stateOn(a.Body, name); got != state {
			t.Errorf("%s: %s, want %s", name, got, state)
		}
	}
	if at := now.Add(-90 * time.Minute).UTC().Format("2006-01-02 15:04:05"); !strings.Contains(a.Body, ">"+at+"</time> <span class=\"ago\"></span> <small>due every 1 h") {
		t.Errorf("the page does not say that flows sent at %s", at)
	}
	var listed struct {
		Instruments []struct{ Name, Received string }
	}
	if err := json.Unmarshal([]byte(l.Get("/?format=json").Body), &listed); err != nil {
		t.Fatal(err)
	}
	for _, in := range listed.Instruments {
		if told := in.Received != ""; told != slices.Contains([]string{"flows", "late", "dark", "maintained", "elsewhere"}, in.Name) {
			t.Errorf("%s: received %q", in.Name, in.Received)
		}
	}
	until(l, "who may read what is under embargo sees its state", "/", func(body string) bool { return stateOn(body, "embargoed") == "Flowing" }, token...)
	if i, j := strings.Index(a.Body, ">gillam</th>"), strings.Index(a.Body, `data-name="late"`); i < 0 || j < i {
		t.Error("instruments do not stand under their station")
	}
}

// Each reader sees what it may read, and how to show a token.
func TestAccess(t *testing.T) {
	t.Parallel()
	l := newLab(t, sends("closed", "secret-station", time.Minute, archivetest.Restricted), sends("members", "", time.Minute, nil))
	a := l.Get("/")
	if a.Status != http.StatusOK || strings.Contains(a.Body, "closed") || strings.Contains(a.Body, "secret-station") || strings.Contains(a.Body, "members") || !strings.Contains(a.Body, `href="/?sign-in"`) {
		t.Errorf("an anonymous reader: %d %s", a.Status, a.Body)
	}
	for name, want := range map[string]string{"Cache-Control": "public, max-age=5, stale-while-revalidate=5", "Vary": "Accept-Encoding, Accept, Authorization", "X-Content-Type-Options": "nosniff",
		"Referrer-Policy": "same-origin", "Content-Type": "text/html; charset=utf-8"} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if csp := a.Header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") || !strings.HasPrefix(csp, "default-src 'none'; script-src 'self';") {
		t.Errorf("Content-Security-Policy: %s", csp)
	}
	named := l.Get("/", token...)
	if named.Status != http.StatusOK || stateOn(named.Body, "closed") == "" || stateOn(named.Body, "members") == "" || strings.Contains(named.Body, "sign-in") ||
		named.Header.Get("Cache-Control") != "private, max-age=5, stale-while-revalidate=5" {
		t.Errorf("a reader: %d %v %s", named.Status, named.Header, named.Body)
	}
	if a := l.Get("/?sign-in"); a.Status != http.StatusUnauthorized || !slices.ContainsFunc(a.Header["Www-Authenticate"], func(s string) bool { return strings.HasPrefix(s, "Basic ") }) {
		t.Errorf("sign in: %d %v", a.Status, a.Header)
	}
	if a := l.Get("/?sign-in", token...); a.Status != http.StatusSeeOther || a.Header.Get("Location") != "/" {
		t.Errorf("signed in: %d %v", a.Status, a.Header)
	}
	if a := l.Get("/", "Authorization", "Bearer nobody's"); a.Status != http.StatusUnauthorized {
		t.Errorf("a token that is nobody's: %d", a.Status)
	}
	if a := l.Get("/elsewhere"); a.Status != http.StatusNotFound { // the archive's old URLs
		t.Errorf("another path: %d", a.Status)
	}
	l.Declare(sends("members", "", time.Minute, nil))
	until(l, "where nothing is for everybody that is said", "/", func(body string) bool {
		return strings.Contains(body, "None that you may read.") && strings.Contains(body, "sign-in")
	})
}

func TestConditionalRequests(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.Get("/")
	tag := a.Header.Get("Etag")
	if again := l.Get("/", "If-None-Match", tag); again.Status != http.StatusNotModified || again.Body != "" || tag == "" {
		t.Errorf("again: %d %q", again.Status, again.Body)
	}
	if other := l.Get("/", token...); other.Header.Get("Etag") == tag {
		t.Error("two readers' pages have one tag")
	}
	j := l.Get("/", "Accept", "application/json")
	var listed struct {
		Format      int
		Site        string
		Instruments []struct{ Name, State string }
	}
	if err := json.Unmarshal([]byte(j.Body), &listed); err != nil || listed.Format != 1 || listed.Site != archivetest.Site || len(listed.Instruments) != 1 || listed.Instruments[0].Name != archivetest.Camera {
		t.Errorf("JSON: %v %s", err, j.Body)
	}
	if j.Header.Get("Etag") == tag || j.Header.Get("Content-Type") != "application/json" {
		t.Errorf("JSON: %v", j.Header)
	}
	if head := l.Head("/"); head.Status != http.StatusOK || head.Body != "" || head.Header.Get("Etag") != tag {
		t.Errorf("HEAD: %d %v", head.Status, head.Header)
	}
	parts := regexp.MustCompile(`"(/console/[^"]+)"`).FindAllStringSubmatch(a.Body, -1)
	if len(parts) < 3 {
		t.Fatalf("the page has the parts %v", parts)
	}
	for _, part := range parts {
		is := l.Get(part[1])
		if is.Status != http.StatusOK || is.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" {
			t.Errorf("%s: %d %v", part[1], is.Status, is.Header)
		}
		if again := l.Get(part[1], "If-None-Match", is.Header.Get("Etag")); again.Status != http.StatusNotModified {
			t.Errorf("%s again: %d", part[1], again.Status)
		}
	}
	if old := l.Get("/console/page-0123456789ab.js"); old.Status != http.StatusOK || old.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("of another version: %d %v", old.Status, old.Header)
	}
	l.Report(archivetest.Camera, time.Now())
	until(l, "there is another tag", "/", func(string) bool { return true })
	l.Until("the page has another tag", func() bool { return l.Get("/").Header.Get("Etag") != tag })
}

// The links of a row lead where they say.
func TestLinks(t *testing.T) {
	t.Parallel()
	l := newLab(t, magnetometer("mag", archivetest.Public))
	l.Put(archivetest.Camera, "2026/a b.png", "png", func(r *wire.Record) { r.MediaType = "image/png" })
	body := until(l, "the picture shows", "/", func(body string) bool { return strings.Contains(body, "<figure") }).Body
	for _, link := range []string{"/archive/mag/", "/atom/mag.xml", "/hapi/info?dataset=mag/seconds", "/archive/allsky-1/", "/archive/allsky-1/2026/a%20b.png"} {
		if !strings.Contains(body, `href="`+link+`"`) {
			t.Errorf("no link to %s: %s", link, body)
		}
		if strings.HasPrefix(link, "/archive/") && l.Get(link).Status != http.StatusOK {
			t.Errorf("%s: %d", link, l.Get(link).Status)
		}
	}
}

// Whatever names, stations, types, units and rights say, it is text.
func TestEscaping(t *testing.T) {
	t.Parallel()
	const bad = `"><script src=//evil.example></script><img src=x onerror=alert(1)>'&`
	evil := magnetometer("evil", archivetest.Public)
	evil.Station, evil.About.Type, evil.Rights = bad+"station", bad+"type", &wire.RightsEntry{License: bad, Credit: bad}
	evil.Channels[0].Name, evil.Channels[0].Parameters[1].Name, evil.Channels[0].Parameters[1].Units = bad, bad, bad
	l := newLab(t, evil, sends(bad, "", time.Minute, archivetest.Public))
	snapshot := *l.Snapshot()
	snapshot.Feeds = map[string]wire.FeedEntry{bad: {Feed: bad, Instruments: []string{"evil"}}}
	l.Set(&snapshot)
	l.Get("/")
	l.Put(archivetest.Camera, `javascript:alert(1)//"><script>.png`, "png", func(r *wire.Record) {
		r.MediaType, r.Key = "image/png", wire.NamedKey(archivetest.Site, archivetest.Camera, "x.png", 1)
	})
	body := until(l, "the picture shows", "/", func(body string) bool { return strings.Contains(body, "<figure") }).Body
	if n := strings.Count(body, "<script"); n != 1 {
		t.Errorf("the page has %d scripts: %s", n, body)
	}
	for _, wrong := range []string{"<img src=x", `"><script src=//`, `href="javascript:`, `src="javascript:`} {
		if strings.Contains(body, wrong) {
			t.Errorf("the page has %q", wrong)
		}
	}
	if !strings.Contains(body, `src="/archive/allsky-1/javascript%3Aalert`) {
		t.Errorf("the picture is not shown: %s", body)
	}
	if !strings.Contains(body, "station</th>") {
		t.Error("the station is not shown")
	}
	var any map[string]any
	if j := l.Get("/?format=json"); json.Unmarshal([]byte(j.Body), &any) != nil || strings.Contains(j.Body, "<script") {
		t.Errorf("JSON: %s", j.Body)
	}
}

// A page of a thousand instruments is of a size that a slow link bears.
func TestThousandInstruments(t *testing.T) {
	t.Parallel()
	const count = 1000
	var all []wire.InstrumentEntry
	for i := range count {
		all = append(all, magnetometer(fmt.Sprintf("magnetometer-%04d", i), archivetest.Public))
		all[i].Station = fmt.Sprintf("station-%02d", i%50)
	}
	l := newLab(t, all...)
	for i := range count {
		l.Report(all[i].Instrument, time.Now())
	}
	a := until(l, "all reports are known", "/", func(body string) bool {
		return strings.Count(body, `data-state="NeverSeen"`)+strings.Count(body, `data-state="NoReport"`) <= 4
	})
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, a.Body)
	_ = z.Close()
	t.Logf("%d instruments: %d bytes, %d compressed; JSON %d", count, len(a.Body), packed.Len(), len(l.Get("/?format=json").Body))
	if len(a.Body) > 800*count || packed.Len() > 60*count {
		t.Errorf("the page has %d bytes, %d compressed", len(a.Body), packed.Len())
	}
	if n := strings.Count(a.Body, "<option"); n != 100 {
		t.Errorf("%d datasets to choose from", n)
	}
	got := l.Get("/", "Accept-Encoding", "gzip")
	if got.Header.Get("Content-Encoding") != "gzip" || len(got.Body) > 100*count {
		t.Errorf("compressed: %d bytes, %v", len(got.Body), got.Header)
	}
}
