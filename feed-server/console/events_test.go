// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
)

// A page gets the changes, and nothing that its reader may not have.
func TestEvents(t *testing.T) {
	t.Parallel()
	l := newLab(t, sends("closed", "", time.Hour, archivetest.Restricted), sends("later", "", time.Hour, &wire.AccessEntry{
		Live: wire.AccessPublic, Archive: wire.AccessPublic, EmbargoMillis: time.Hour.Milliseconds(), Readers: []string{archivetest.Reader}}))
	anybody, reader := follow(l, ""), follow(l, "", token...)
	if u := anybody.until(func(update) bool { return true }); len(u.Rows) != 2 || u.Layout == "" || u.At == 0 {
		t.Errorf("at first: %+v", u)
	}
	for _, instrument := range []string{"closed", "later", archivetest.Camera} { // what is not for everybody first
		l.Report(instrument, time.Now())
		l.Put(instrument, "new-"+instrument+".png", "png", func(r *wire.Record) { r.MediaType = "image/png" })
	}
	shows := func(name string) func(update) bool {
		return func(u update) bool {
			for _, r := range u.Rows {
				if r.Name == name && r.Picture != nil && strings.HasSuffix(r.Picture.URL, "/new-"+name+".png") {
					return true
				}
			}
			return false
		}
	}
	anybody.until(shows(archivetest.Camera))
	if told := strings.Join(anybody.lines, ""); strings.Contains(told, "closed") || strings.Contains(told, "new-later") {
		t.Errorf("an anonymous reader was told %s", told)
	}
	all := map[string]bool{"closed": false, "later": false, archivetest.Camera: false}
	reader.until(func(u update) bool {
		for name, shown := range all {
			all[name] = shown || shows(name)(u)
		}
		return all["closed"] && all["later"] && all[archivetest.Camera]
	})
	// A client that reconnects gets the changes since then, and nothing older.
	l.Report("closed", time.Now().Add(-time.Minute))
	again := follow(l, "?since=99999999999999")
	if u := again.until(func(update) bool { return true }); len(u.Rows) != 0 || u.Layout == "" {
		t.Errorf("a page that knows all: %+v", u)
	}
}

// A line begins with the samples in the stream, and continues with new ones.
func TestLine(t *testing.T) {
	t.Parallel()
	open, closed := magnetometer("mag", archivetest.Public), magnetometer("closed", &wire.AccessEntry{Live: wire.AccessRestricted, Archive: wire.AccessPublic, Readers: []string{archivetest.Reader}})
	l := newLab(t, open, closed)
	step := time.Now().Truncate(5 * time.Second).Add(-time.Minute)
	for i, payload := range []string{"20000.5,-3,a", "20001.5,-4,b", "99999.00,-5,c", "no,number,d"} {
		for _, instrument := range []string{"mag", "closed"} {
			l.Datagram(instrument, "raw", payload, step.Add(time.Duration(i)*time.Second))
		}
	}
	e := follow(l, "?line=mag/seconds")
	u := e.until(func(u update) bool { return len(u.Line) > 0 && *u.Line[0][2] == -4 })
	if p := u.Line[0]; len(u.Line) != 1 || len(p) != 3 || int64(*p[0]) != step.UnixMilli() || *p[1] != 20001 {
		t.Errorf("the line begins with %s", e.lines[len(e.lines)-1])
	}
	now := time.Now()
	l.Datagram("mag", "raw", "20002.25,7,e", now)
	e.until(func(u update) bool {
		return len(u.Line) == 1 && int64(*u.Line[0][0]) == now.Truncate(5*time.Second).UnixMilli() && *u.Line[0][1] == 20002.25
	})

	shut, reader := follow(l, "?line=closed/seconds"), follow(l, "?line=closed/seconds", token...)
	reader.until(func(u update) bool { return len(u.Line) > 0 })
	l.Report("mag", time.Now()) // reported at the time when a line would have arrived
	shut.until(func(u update) bool {
		for _, r := range u.Rows {
			if r.Name == "mag" && r.State == "Flowing" {
				return true
			}
		}
		return false
	})
	if told := strings.Join(shut.lines, ""); strings.Contains(told, `"line"`) {
		t.Errorf("who may not have live data was told %s", told)
	}
	for _, other := range []string{"", "nobody/seconds", "mag", "mag/none", archivetest.Camera + "/none", "%00/%00"} {
		follow(l, "?line="+other).until(func(u update) bool { return u.Line == nil })
	}
	// If the declaration of its dataset changes, a line ends and the page reconnects.
	changed := magnetometer("mag", archivetest.Public)
	changed.Channels[0].CadenceMillis = 2000
	l.Declare(changed)
	for {
		if _, err := e.ReadString('\n'); err != nil {
			break
		}
	}
}
