// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The instruments of the test: hidden is Restricted to the reader insider, fresh is public after an
// embargo that has not ended, members is Authenticated, open is public.
const (
	hidden  = "hidden"
	fresh   = "fresh"
	members = "members"
	open    = "open"
)

// The instruments of another Site: guestHidden is Restricted there, and guestFresh under an embargo
// that has not ended, both for a reader insider of that Site, who has no rights here; guestOpen is
// public.
const (
	guestHidden = "arctic_hidden"
	guestFresh  = "arctic_fresh"
	guestOpen   = "arctic_open"
)

// The clients: an anonymous reader, two readers of the Site, and two FeedConsumers.
const (
	anonymous = "anonymous"
	outsider  = "outsider"
	insider   = "insider"
	// namesake is a FeedConsumer that has the name of the reader insider. Its filter
	// selects open alone.
	namesake = "namesake"
	// member is a FeedConsumer whose filter selects members.
	member = "member"
)

// mayNotRead are the instruments that must stay hidden from each of them.
var mayNotRead = map[string][]string{
	anonymous: {hidden, fresh, members, guestHidden, guestFresh}, outsider: {hidden, fresh, guestHidden, guestFresh},
	namesake: {hidden, fresh, members, guestHidden, guestFresh}, member: {hidden, fresh, guestHidden, guestFresh},
	insider: {guestHidden, guestFresh},
}

// ask is one request at an endpoint, and the status for anonymous readers, for readers in general
// and for the insider. If shows is set, it is text about an instrument that is in the answers to
// its readers, and in no others. FeedConsumers get the outsider's answers, except for /feeds/,
// which another consumer's token does not open, and for members.
type ask struct {
	path                         string
	anonymous, outsider, insider int
	shows                        string
}

// want is the expected status for a client.
func (a ask) want(method, who string) int {
	feeds := strings.HasPrefix(a.path, "/feeds/") && method != http.MethodOptions
	switch {
	case who == anonymous:
		return a.anonymous
	case who == insider:
		return a.insider
	case who == outsider:
		return a.outsider
	case feeds:
		return http.StatusUnauthorized
	case who == namesake && strings.Contains(a.path, members) && a.outsider == http.StatusOK:
		return http.StatusForbidden
	default:
		return a.outsider
	}
}

// asks are all endpoints that a feed server has. One that is new must say here what it
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
		{"/archive/fresh/n/" + rolledOver, 404, 404, 200, secret},
		{"/archive/members/", 401, 200, 200, ""},
		{"/archive/members/n/?format=json", 401, 200, 200, ""},
		{"/archive/members/n/of-members.csv", 401, 200, 200, ""},
		{"/archive/arctic_hidden/", 401, 403, 403, ""},
		{"/archive/arctic_hidden/n/of-arctic_hidden.csv", 401, 403, 403, ""},
		{"/archive/arctic_fresh/n/of-arctic_fresh.csv", 404, 404, 404, ""},
		{"/archive/arctic_fresh/n/", 404, 404, 404, ""},
		{"/archive/arctic_open/", 200, 200, 200, ""},
		{"/archive/arctic_open/n/?format=json", 200, 200, 200, ""},
		{"/archive/arctic_open/n/of-arctic_open.csv", 200, 200, 200, ""},
	},
	"/robots.txt":                    {{"/robots.txt", 200, 200, 200, ""}},
	"/sitemap.xml":                   {{"/sitemap.xml", 200, 200, 200, ""}},
	"/sitemaps/{instrument}":         {{"/sitemaps/hidden.xml", 404, 404, 404, ""}, {"/sitemaps/open.xml", 200, 200, 200, ""}, {"/sitemaps/arctic_open.xml", 404, 404, 404, ""}},
	"/legacy/":                       {{"/legacy/127.0.0.1/$port/$today", 200, 200, 200, secret}},
	"/":                              {{"/old/hidden/of-hidden.csv", 401, 403, 200, secret}, {"/old/fresh/of-fresh.csv", 404, 404, 200, secret}, {"/old/members/of-members.csv", 401, 200, 200, ""}},
	"/{$}":                           {{"/", 200, 200, 200, ">" + hidden + "<"}, {"/?format=json", 200, 200, 200, `"` + hidden + `"`}, {"/?sign-in", 401, 200, 200, ""}},
	"/console/{asset}":               {{"/console/page-0.css", 200, 200, 200, ""}, {"/console/none", 404, 404, 404, ""}},
	"/console/events":                {{"/console/events", 200, 200, 200, ""}, {"/console/events?line=hidden/values", 200, 200, 200, ""}},
	"/latest/{instrument}":           {{"/latest/hidden", 401, 403, 200, secret}, {"/latest/fresh", 404, 404, 200, secret}, {"/latest/members", 401, 200, 200, ""}, {"/latest/open", 200, 200, 200, ""}, {"/latest/arctic_hidden", 401, 403, 403, ""}, {"/latest/arctic_fresh", 404, 404, 404, ""}, {"/latest/arctic_open", 200, 200, 200, ""}},
	"/latest/{instrument}/events":    {{"/latest/hidden/events", 401, 403, 200, ""}, {"/latest/fresh/events", 404, 404, 200, ""}, {"/latest/members/events", 401, 200, 200, ""}, {"/latest/open/events", 200, 200, 200, ""}, {"/latest/arctic_hidden/events", 401, 403, 403, ""}, {"/latest/arctic_fresh/events", 404, 404, 404, ""}, {"/latest/arctic_open/events", 200, 200, 200, ""}},
	"/bundle/{file}":                 {{"/bundle/hidden.tar", 401, 403, 200, secret}, {"/bundle/fresh.tar", 200, 200, 200, secret}, {"/bundle/fresh.tar.zst", 200, 200, 200, secret}, {"/bundle/members.tar", 401, 200, 200, ""}, {"/bundle/open.tar", 200, 200, 200, ""}, {"/bundle/arctic_hidden.tar", 401, 403, 403, ""}, {"/bundle/arctic_fresh.tar", 200, 200, 200, ""}, {"/bundle/arctic_open.tar", 200, 200, 200, ""}},
	"/bundle.tar":                    {{"/bundle.tar?instrument=open&instrument=hidden", 401, 403, 200, secret}, {"/bundle.tar?instrument=open&instrument=fresh", 200, 200, 200, "of-fresh"}, {"/bundle.tar?instrument=open&instrument=members", 401, 200, 200, ""}, {"/bundle.tar?instrument=open&instrument=arctic_hidden", 401, 403, 403, ""}},
	"/bundle.tar.zst":                {{"/bundle.tar.zst?instrument=open&instrument=hidden", 401, 403, 200, secret}, {"/bundle.tar.zst?instrument=open&instrument=fresh", 200, 200, 200, "of-fresh"}},
	"/mirror/{$}":                    {{"/mirror/", 200, 200, 200, `"` + hidden + `"`}},
	"POST /mirror/days":              {{"/mirror/days\n" + question(hidden, ""), 200, 200, 200, `"entries":`}, {"/mirror/days\n" + question(fresh, ""), 200, 200, 200, `"entries":`}, {"/mirror/days\n" + question(open, ""), 200, 200, 200, ""}, {"/mirror/days\n" + question(guestOpen, ""), 200, 200, 200, ""}},
	"POST /mirror/lists":             {{"/mirror/lists\n" + question(hidden, "$date"), 200, 200, 200, "of-hidden"}, {"/mirror/lists\n" + question(fresh, "$date"), 200, 200, 200, "of-fresh"}, {"/mirror/lists\n" + question(open, "$date"), 200, 200, 200, ""}},
	"POST /mirror/confirmed":         {{"/mirror/confirmed\n" + question(hidden, "$date"), 401, 403, 403, ""}},
	"POST /mirror/objects.tar":       {{"/mirror/objects.tar\n" + question(hidden, "$date"), 200, 200, 200, secret}, {"/mirror/objects.tar\n" + question(fresh, "$date"), 200, 200, 200, secret}},
	"/atom/{file}":                   {{"/atom/hidden.xml", 401, 403, 200, "of-hidden"}, {"/atom/fresh.xml", 200, 200, 200, "of-fresh"}, {"/atom/members.xml", 401, 200, 200, ""}, {"/atom/arctic_hidden.xml", 401, 403, 403, ""}, {"/atom/arctic_fresh.xml", 200, 200, 200, ""}, {"/atom/arctic_open.xml", 200, 200, 200, ""}},
	"/atom/feeds/{file}":             {{"/atom/feeds/all.xml", 200, 200, 200, hidden}},
	"/wis2/{feed}/events":            {{"/wis2/all/events", 200, 200, 200, ""}, {"/wis2/only-members/events", 401, 200, 200, ""}},
	"/hapi":                          {{"/hapi", 200, 200, 200, ""}},
	"/hapi/":                         {{"/hapi/catalog", 200, 200, 200, hidden}, {"/hapi/info?dataset=hidden/values", 401, 403, 200, "field"}, {"/hapi/data?dataset=hidden/values&start=$start&stop=$stop", 401, 403, 200, secret}, {"/hapi/data?dataset=fresh/values&start=$start&stop=$stop", 400, 400, 200, secret}, {"/hapi/data?dataset=fresh/values&start=$rolled&stop=$start", 400, 400, 400, ""}, {"/hapi/info?dataset=fresh/values", 200, 200, 200, ""}, {"/hapi/info?dataset=arctic_open/values", 404, 404, 404, ""}, {"/hapi/info?dataset=members/values", 401, 200, 200, ""}, {"/hapi/data?dataset=members/values&start=$start&stop=$stop", 401, 200, 200, ""}},
	"GET /feeds/{feed}/ws":           {{"/feeds/all/ws?consumer=ws", 401, 403, 426, ""}, {"/feeds/all/ws?consumer=ws-of-all", 426, 426, 426, ""}},
	"GET /feeds/{feed}/events":       {{"/feeds/all/events?consumer=events", 401, 403, 200, ""}, {"/feeds/all/events?consumer=events-of-all", 200, 200, 200, ""}},
	"POST /feeds/{feed}/tickets":     {{"/feeds/all/tickets?consumer=events", 401, 403, 201, ""}},
	"POST /feeds/{feed}/sampling":    {{"/feeds/all/sampling?consumer=events", 401, 403, 403, ""}},
	"DELETE /feeds/{feed}/sampling":  {{"/feeds/all/sampling?consumer=events", 401, 403, 403, ""}},
	"OPTIONS /feeds/{feed}/tickets":  {{"/feeds/all/tickets", 204, 204, 204, ""}},
	"OPTIONS /feeds/{feed}/events":   {{"/feeds/all/events", 204, 204, 204, ""}},
	"OPTIONS /feeds/{feed}/sampling": {{"/feeds/all/sampling", 204, 204, 204, ""}},
}

// question is a line of what a mirror posts.
func question(instrument, day string) string {
	return fmt.Sprintf(`{"instrument":%q,"day":%q}`, instrument, day)
}

// secret is in what hidden and fresh sent, and open did not; ofMembers is in what
// members sent.
const (
	secret    = "48123.5"
	ofMembers = "59321.25"
	ofGuests  = "63123.75"
)

// values are what the instruments observed.
var values = map[string]string{hidden: secret + "7", fresh: secret + "8", members: ofMembers, open: "1", guestHidden: ofGuests + "1", guestFresh: ofGuests + "2", guestOpen: "2"}

// Each endpoint reveals to each client only what it may know.
func TestEveryEndpoint(t *testing.T) {
	t.Parallel()
	l := newEndpointsLab(t)
	var known []string
	for pattern := range asks {
		known = append(known, pattern)
	}
	slices.Sort(known)
	if are := l.server.endpoints.Endpoints(); !slices.Equal(are, known) {
		t.Fatalf("there are endpoints\n%q\nthis test knows\n%q", are, known)
	}
	// The manifest's writer lists the last that came: then all is there.
	l.until("/archive/hidden/n/of-hidden.csv", 200)
	l.until(pathOf(fresh), 200)
	l.until(pathOf(members), 200)
	l.until(pathOf(guestOpen), 200)
	l.until("/archive/fresh/n/"+rolledOver, 200)
	for pattern, all := range asks {
		method, _, found := strings.Cut(pattern, " ")
		if !found {
			method = http.MethodGet
		}
		for _, a := range all {
			l.check(method, a)
		}
	}
	t.Run("rsync", l.checkRsync)
	t.Run("guests", l.checkGuests)
	// A clock that is wrong moves neither the start nor the sample of a dataset.
	year := l.rolledBack().Format("2006-")
	for _, path := range []string{"/hapi/info?dataset=fresh/values", "/hapi/catalog?depth=all", "/hapi"} {
		if _, body := l.ask(http.MethodGet, path, insider); strings.Contains(body, year) {
			t.Errorf("%s follows a clock that is wrong: %.500s", path, body)
		}
	}
	// The gateway archives instruments' descriptions of their data, and info has them.
	l.untilShows("/hapi/info?dataset="+hidden+"/values", `"x_generations":[{"from":"`)
}

// checkRsync asks with rsync, over which clients cannot authenticate.
func (l *endpointsLab) checkRsync(t *testing.T) {
	program, err := exec.LookPath("rsync")
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("rsync is not installed: apt-get install rsync")
	} else if err != nil {
		t.Fatal("rsync is not installed")
	}
	module, dir := "rsync://"+l.server.kept.rsync.Address()+"/hub/", t.TempDir()
	for _, from := range []string{"", hidden, fresh, members, hidden + "/n/of-hidden.csv", guestHidden, guestFresh, "*/n/*"} {
		out, _ := exec.CommandContext(t.Context(), program, "-av", "--stats", module+from, dir).CombinedOutput() // it fails for what is not there
		l.tellsNothing("rsync "+from, anonymous, strings.ReplaceAll(string(out), from, ""), true)
	}
	all := ""
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all += path + "\n" + string(data)
		return err
	})
	if err != nil || !strings.Contains(all, "of-open.csv") || !strings.Contains(all, "of-"+guestOpen+".csv") {
		t.Errorf("%s, %v", all, err)
	}
	l.tellsNothing("rsync", anonymous, all, true)
}

// checkGuests checks the answers about instruments of another Site.
func (l *endpointsLab) checkGuests(t *testing.T) {
	for _, who := range []string{anonymous, outsider, insider} {
		for path, says := range map[string]string{
			"/": `from arctic<`, "/?format=json": `"origin":"arctic"`, "/archive/": `href="arctic_open/"`, "/archive/?format=json": `"name":"arctic_open"`,
			"/archive/arctic_open/": `Mirrored from site arctic`, "/archive/arctic_open/?format=json": `"origin":"arctic","rights":{"license":"CC-BY-4.0"`, "/bundle/arctic_open.tar": "Image: arctic",
		} {
			if _, body := l.ask(http.MethodGet, path, who); !strings.Contains(body, says) || strings.Contains(body, guestHidden) {
				t.Errorf("%s, %s: lacks %s, or has %s: %.300s", path, who, says, guestHidden, body)
			}
		}
		// Content that is available at the other Site, or is about live data, is not offered here.
		for _, path := range []string{"/mirror/", "/sitemap.xml", "/hapi/catalog", "/atom/feeds/all.xml"} {
			if status, body := l.ask(http.MethodGet, path, who); status != http.StatusOK || strings.Contains(body, "arctic") {
				t.Errorf("%s, %s: %d, tells of instruments of another Site: %.300s", path, who, status, body)
			}
		}
		for path, has := range map[string]string{"/mirror/days\n" + question(guestOpen, ""): "entries", "/mirror/lists\n" + question(guestOpen, "$date"): "sha256", "/mirror/objects.tar\n" + question(guestOpen, "$date"): "of-" + guestOpen} {
			path = strings.ReplaceAll(path, "$date", l.sent.Format(time.DateOnly))
			if status, body := l.ask(http.MethodPost, path, who); status != http.StatusOK || strings.Contains(body, has) {
				t.Errorf("%s, %s: %d, is offered to mirrors: %.300s", path, who, status, body)
			}
		}
	}
}

// check asks as everybody.
func (l *endpointsLab) check(method string, a ask) {
	l.t.Helper()
	path := strings.NewReplacer("$port", fmt.Sprint(l.port), "$today", l.sent.Format("2006/01/02"), "$date", l.sent.Format(time.DateOnly),
		"$rolled", l.rolledBack().Format(time.RFC3339), "$start", l.sent.Add(-time.Minute).Format(time.RFC3339), "$stop", l.sent.Add(time.Minute).Format(time.RFC3339)).Replace(a.path)
	for _, who := range []string{anonymous, outsider, insider, namesake, member} {
		status, body := l.ask(method, path, who)
		if want := a.want(method, who); status != want {
			l.t.Errorf("%s %s, %s: %d, want %d: %.300s", method, path, who, status, want, body)
		}
		if a.shows != "" && a.insider == 200 && strings.Contains(body, a.shows) != (who == insider) {
			l.t.Errorf("%s %s, %s: tells of %q, or fails to: %.300s", method, path, who, a.shows, body)
		}
		// An error repeats to the client what it asked for.
		l.tellsNothing(method+" "+path, who, body, status == http.StatusOK)
	}
}

// tellsNothing fails if a text has any data of instruments that the client may not read; with
// names, their names count as data.
func (l *endpointsLab) tellsNothing(of, who, text string, names bool) {
	l.t.Helper()
	for _, o := range l.objects {
		if !slices.Contains(mayNotRead[who], o.instrument) {
			continue
		}
		for what, is := range map[string]string{"bytes": values[o.instrument], "digest": hex.EncodeToString(o.digest[:8]), "digest in base64": base64.StdEncoding.EncodeToString(o.digest[:9]), "name": o.name} {
			if (what != "name" || names) && strings.Contains(text, is) {
				l.t.Errorf("%s, %s: has the %s of what %s sent: %.300s", of, who, what, o.instrument, text)
			}
		}
	}
}

// goesOn are the endpoints that report new objects live, with their instruments: anonymous readers
// and the outsider get only open.
var goesOn = map[string][]string{
	"/latest/open/events":                      {open},
	"/latest/hidden/events":                    {hidden},
	"/latest/fresh/events":                     {fresh},
	"/wis2/all/events":                         {hidden, fresh, open},
	"/feeds/all/events?consumer=events":        {hidden},
	"/feeds/all/events?consumer=events-of-all": {hidden, fresh, open},
	"/feeds/all/ws?consumer=ws-of-all":         {hidden, fresh, open},
}

// A client that follows an endpoint gets new objects that it may read, and nothing else.
func TestEndpointsThatGoOn(t *testing.T) {
	t.Parallel()
	l := newEndpointsLab(t)
	l.until(pathOf(open), 200)
	followed := map[string]*follower{}
	for path, about := range goesOn {
		for _, who := range []string{anonymous, outsider, insider} {
			if who == insider || slices.Contains(about, open) {
				followed[path+", "+who] = l.follow(path, who)
			}
		}
	}
	latest := l.follow("/latest/"+guestOpen+"/events", anonymous)
	guest := l.pull(guestOpen, "later-"+guestOpen+".csv", "3")
	latest.until(guest.name)
	// Objects that are not public come first: a client that gets the objects behind them did not
	// get them.
	for _, instrument := range []string{hidden, fresh, open} {
		o := l.send(instrument, "later-"+instrument+".csv", fmt.Sprintf("%s,%s1\n", l.sent.Format(time.RFC3339), values[instrument]))
		for path, about := range goesOn {
			for _, who := range []string{anonymous, outsider, insider} {
				f := followed[path+", "+who]
				if f == nil || !slices.Contains(about, instrument) || who != insider && instrument != open {
					continue
				}
				f.until(o.name)
			}
		}
	}
	for of, f := range followed {
		path, who, _ := strings.Cut(of, ", ")
		l.tellsNothing(path, who, f.text(), true)
		if strings.Contains(f.text(), guest.name) {
			t.Errorf("%s: Feeds are of the Site's own instruments: %s", of, f.text())
		}
	}
}
