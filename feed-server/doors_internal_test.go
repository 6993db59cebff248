// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// The instruments of the test: hidden is Restricted to the reader insider, fresh is
// everybody's after an embargo that has not ended, open is everybody's now.
const (
	hidden = "hidden"
	fresh  = "fresh"
	open   = "open"
)

// who asks.
const (
	stranger = "stranger"
	outsider = "outsider"
	insider  = "insider"
)

// ask is one request at a door, and what strangers, readers in general and the insider
// are answered. Where shows is set, it tells of an instrument in the answers of those
// who may read it, and in no others.
type ask struct {
	path                        string
	stranger, outsider, insider int
	shows                       string
}

// asks are all doors that a feed server has. One that is new must say here what it
// answers.
var asks = map[string][]ask{
	"/archive/": {
		{"/archive/", 200, 200, 200, ">" + hidden},
		{"/archive/hidden/", 401, 403, 200, "n/"},
		{"/archive/hidden/n/", 401, 403, 200, "of-hidden"},
		{"/archive/hidden/n/of-hidden.csv", 401, 403, 200, secret},
		{"/archive/hidden/n/none", 401, 403, 404, secret + "?"},
		{"/archive/fresh/n/of-fresh.csv", 404, 404, 200, secret},
		{"/archive/fresh/n/?format=json", 404, 404, 200, "of-fresh"},
	},
	"/robots.txt":                    {{"/robots.txt", 200, 200, 200, ""}},
	"/sitemap.xml":                   {{"/sitemap.xml", 200, 200, 200, ""}},
	"/sitemaps/{instrument}":         {{"/sitemaps/hidden.xml", 404, 404, 404, ""}, {"/sitemaps/open.xml", 200, 200, 200, ""}},
	"/legacy/":                       {{"/legacy/127.0.0.1/$port/$today", 200, 200, 200, secret}},
	"/":                              {{"/old/hidden/of-hidden.csv", 401, 403, 200, secret}, {"/old/fresh/of-fresh.csv", 404, 404, 200, secret}, {"/", 404, 404, 404, ""}},
	"/latest/{instrument}":           {{"/latest/hidden", 401, 403, 200, secret}, {"/latest/fresh", 404, 404, 200, secret}, {"/latest/open", 200, 200, 200, ""}},
	"/latest/{instrument}/events":    {{"/latest/hidden/events", 401, 403, 200, ""}, {"/latest/fresh/events", 404, 404, 200, ""}, {"/latest/open/events", 200, 200, 200, ""}},
	"/bundle/{file}":                 {{"/bundle/hidden.tar", 401, 403, 200, secret}, {"/bundle/fresh.tar", 200, 200, 200, secret}, {"/bundle/fresh.tar.zst", 200, 200, 200, secret}, {"/bundle/open.tar", 200, 200, 200, ""}},
	"/bundle.tar":                    {{"/bundle.tar?instrument=open&instrument=hidden", 401, 403, 200, secret}, {"/bundle.tar?instrument=open&instrument=fresh", 200, 200, 200, "of-fresh"}},
	"/bundle.tar.zst":                {{"/bundle.tar.zst?instrument=open&instrument=hidden", 401, 403, 200, secret}, {"/bundle.tar.zst?instrument=open&instrument=fresh", 200, 200, 200, "of-fresh"}},
	"/atom/{file}":                   {{"/atom/hidden.xml", 401, 403, 200, "of-hidden"}, {"/atom/fresh.xml", 200, 200, 200, "of-fresh"}},
	"/atom/feeds/{file}":             {{"/atom/feeds/all.xml", 200, 200, 200, hidden}},
	"/wis2/{feed}/events":            {{"/wis2/all/events", 200, 200, 200, ""}},
	"/hapi":                          {{"/hapi", 200, 200, 200, ""}},
	"/hapi/":                         {{"/hapi/catalog", 200, 200, 200, hidden}, {"/hapi/info?dataset=hidden/values", 401, 403, 200, "field"}, {"/hapi/data?dataset=hidden/values&start=$start&stop=$stop", 401, 403, 200, secret}, {"/hapi/data?dataset=fresh/values&start=$start&stop=$stop", 400, 400, 200, secret}, {"/hapi/info?dataset=fresh/values", 200, 200, 200, ""}},
	"GET /feeds/{feed}/ws":           {{"/feeds/all/ws?consumer=ws", 401, 403, 426, ""}, {"/feeds/all/ws?consumer=ws-of-all", 426, 426, 426, ""}},
	"GET /feeds/{feed}/events":       {{"/feeds/all/events?consumer=events", 401, 403, 200, ""}, {"/feeds/all/events?consumer=events-of-all", 200, 200, 200, ""}},
	"POST /feeds/{feed}/tickets":     {{"/feeds/all/tickets?consumer=events", 401, 403, 201, ""}},
	"POST /feeds/{feed}/sampling":    {{"/feeds/all/sampling?consumer=events", 401, 403, 403, ""}},
	"DELETE /feeds/{feed}/sampling":  {{"/feeds/all/sampling?consumer=events", 401, 403, 403, ""}},
	"OPTIONS /feeds/{feed}/tickets":  {{"/feeds/all/tickets", 204, 204, 204, ""}},
	"OPTIONS /feeds/{feed}/events":   {{"/feeds/all/events", 204, 204, 204, ""}},
	"OPTIONS /feeds/{feed}/sampling": {{"/feeds/all/sampling", 204, 204, 204, ""}},
}

// secret is in what hidden and fresh sent, and open did not.
const secret = "48123.5"

// values are what the instruments observed.
var values = map[string]string{hidden: secret + "7", fresh: secret + "8", open: "1"}

// Each door that there is tells everybody what they may know, and nobody more.
func TestEveryDoor(t *testing.T) {
	t.Parallel()
	l := newDoorsLab(t)
	var known []string
	for pattern := range asks {
		known = append(known, pattern)
	}
	slices.Sort(known)
	if are := l.server.doors.Doors(); !slices.Equal(are, known) {
		t.Fatalf("there are doors\n%q\nthis test knows\n%q", are, known)
	}
	// The manifest's writer lists the last that came: then all is there.
	l.until("/archive/hidden/n/of-hidden.csv", 200)
	l.until(pathOf(fresh), 200)
	for pattern, all := range asks {
		method, _, found := strings.Cut(pattern, " ")
		if !found {
			method = http.MethodGet
		}
		for _, a := range all {
			l.check(method, a)
		}
	}
	// The gateway archives what instruments say of their data, and info tells it.
	l.untilShows("/hapi/info?dataset="+hidden+"/values", `"x_generations":[{"from":"`)
}

// check asks as everybody.
func (l *doorsLab) check(method string, a ask) {
	l.t.Helper()
	path := strings.NewReplacer("$port", fmt.Sprint(l.port), "$today", l.sent.Format("2006/01/02"),
		"$start", l.sent.Add(-time.Minute).Format(time.RFC3339), "$stop", l.sent.Add(time.Minute).Format(time.RFC3339)).Replace(a.path)
	for _, c := range []struct {
		who  string
		want int
	}{{stranger, a.stranger}, {outsider, a.outsider}, {insider, a.insider}} {
		status, body := l.ask(method, path, c.who)
		if status != c.want {
			l.t.Errorf("%s %s, %s: %d, want %d: %.300s", method, path, c.who, status, c.want, body)
		}
		if a.shows != "" && a.insider == 200 && strings.Contains(body, a.shows) != (c.who == insider) {
			l.t.Errorf("%s %s, %s: tells of %q, or fails to: %.300s", method, path, c.who, a.shows, body)
		}
		if c.who != insider {
			// Who is refused is told again what they asked for.
			l.tellsNothing(method+" "+path+", "+c.who, body, status == http.StatusOK)
		}
	}
}

// tellsNothing fails where a text has anything of what hidden and fresh sent; names says
// that their names are part of that.
func (l *doorsLab) tellsNothing(of, text string, names bool) {
	l.t.Helper()
	for _, o := range l.objects {
		if o.instrument == open {
			continue
		}
		for what, is := range map[string]string{"bytes": secret, "digest": hex.EncodeToString(o.digest[:8]), "digest in base64": base64.StdEncoding.EncodeToString(o.digest[:9]), "name": o.name} {
			if (what != "name" || names) && strings.Contains(text, is) {
				l.t.Errorf("%s: has the %s of what %s sent: %.300s", of, what, o.instrument, text)
			}
		}
	}
}

// goesOn are the doors that tell of what comes, as it comes, and whose instruments they
// are about: strangers and the outsider are told of open alone.
var goesOn = map[string][]string{
	"/latest/open/events":                      {open},
	"/latest/hidden/events":                    {hidden},
	"/latest/fresh/events":                     {fresh},
	"/wis2/all/events":                         {hidden, fresh, open},
	"/feeds/all/events?consumer=events":        {hidden},
	"/feeds/all/events?consumer=events-of-all": {hidden, fresh, open},
	"/feeds/all/ws?consumer=ws-of-all":         {hidden, fresh, open},
}

// Who follows a door is told of what comes, if it is for them, and of nothing else.
func TestDoorsThatGoOn(t *testing.T) {
	t.Parallel()
	l := newDoorsLab(t)
	l.until(pathOf(open), 200)
	followed := map[string]*follower{}
	for path, about := range goesOn {
		for _, who := range []string{stranger, outsider, insider} {
			if who == insider || slices.Contains(about, open) {
				followed[path+", "+who] = l.follow(path, who)
			}
		}
	}
	// What is not for everybody goes first: who is told of what comes behind it was not
	// told of it.
	for _, instrument := range []string{hidden, fresh, open} {
		o := l.send(instrument, "later-"+instrument+".csv", fmt.Sprintf("%s,%s1\n", l.sent.Format(time.RFC3339), values[instrument]))
		for path, about := range goesOn {
			for _, who := range []string{stranger, outsider, insider} {
				f := followed[path+", "+who]
				if f == nil || !slices.Contains(about, instrument) || who != insider && instrument != open {
					continue
				}
				f.until(o.name)
			}
		}
	}
	for of, f := range followed {
		if !strings.HasSuffix(of, insider) {
			l.tellsNothing(of, f.text(), true)
		}
	}
}
