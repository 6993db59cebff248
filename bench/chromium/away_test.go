// SPDX-License-Identifier: Apache-2.0

package chromium_test

import (
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
)

// away is a server whose clients lose it, and find it again at its address.
type away struct {
	t      *testing.T
	of     *url.URL
	server *httptest.Server
	at     string
}

func newAway(t *testing.T, of string) *away {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	a := &away{t: t, of: u, at: "127.0.0.1:0"}
	a.comes()
	a.at = a.server.Listener.Addr().String()
	t.Cleanup(a.goes)
	return a
}

func (a *away) comes() {
	a.t.Helper()
	l, err := net.Listen("tcp", a.at)
	if err != nil {
		a.t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(a.of)
	proxy.FlushInterval = -1
	a.server = httptest.NewUnstartedServer(proxy)
	_ = a.server.Listener.Close()
	a.server.Listener = l
	a.server.Start()
}

func (a *away) goes() {
	a.server.CloseClientConnections()
	a.server.Close()
}

// A page whose server is away says so, and takes nothing that it shows for what is now; what is overdue it sees by itself.
func TestPageOfAServerThatIsAway(t *testing.T) {
	t.Parallel()
	b := start(t)
	l := newSite(t)
	l.Declare(variometer("magnetometer", "thule"), variometer("late", "thule"))
	l.Report("magnetometer", time.Now())
	l.Report("late", time.Now())
	for i := range 10 {
		l.Datagram("late", "raw", field(i), time.Now().Add(time.Duration(i-10)*time.Second))
	}
	since := time.Now().Add(-20 * time.Minute).UTC()
	l.Level(&wire.SurgeLevel{Site: archivetest.Site, Level: "storm", Since: &since, Why: "Kp 7.3 (kp) ≥ 5"})
	server := newAway(t, l.URL)
	tab, err := b.Watch(server.server.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tab.Close)
	until := func(what, expression string) {
		t.Helper()
		l.Until(what, func() bool {
			var is bool
			if err := tab.Read(expression, &is); err != nil {
				t.Fatal(err)
			}
			return is
		})
	}
	row := func(name string) string {
		return `document.querySelector('tr[data-name=` + name + `] .state').innerText`
	}
	until("the page is connected", `document.getElementById("connection").textContent === "live"`)
	until("instruments flow", row("magnetometer")+` === "● flowing" && `+row("late")+` === "● flowing"`)
	const line = `document.getElementById("line-state").innerText`
	until("the line is followed", line+` === "live, means of 5 s" && document.querySelectorAll("#chart .trace").length === 3`)
	until("the level shows", `document.getElementById("level").innerText === "level storm"`)
	until("nothing says that the server is away", `document.getElementById("away").hidden`)

	server.goes()
	until("the page says since when, and when it asks again", `/^The server has not answered since \d\d:\d\d:\d\d UTC: .* (It is asked again in \d+ s|It is being asked again)\.$/.test(document.getElementById("away").innerText)`)
	until("the count is no longer one of now", `/^\? 2 flowing as of \d\d:\d\d:\d\d$/.test(document.querySelector('.counts [data-state=Flowing]').innerText)`)
	until("nor is the state", `/^\? flowing as of \d\d:\d\d:\d\d$/.test(`+row("magnetometer")+`)`)
	until("the line is not followed any more", `/^stopped as of \d\d:\d\d:\d\d$/.test(`+line+`)`)
	until("nor is the level one of now", `/^level storm as of \d\d:\d\d:\d\d$/.test(document.getElementById("level").innerText)`)
	until("the level is grey, and the line does not beat", `(c => c(document.getElementById("level")).color === c(document.querySelector("small")).color && c(document.querySelector("#chart .dot")).animationName === "none")(getComputedStyle)`)
	until("it is grey", `(c => c(document.querySelector('tr[data-name=magnetometer] .sign')) === c(document.querySelector('small')))(e => getComputedStyle(e).color)`)
	// The page has the time of its last datagram; that it is long due it sees once that is long ago.
	if err := tab.Do(`document.querySelector('tr[data-name=late] time').dateTime = new Date(Date.now() - 3600e3).toISOString()`); err != nil {
		t.Fatal(err)
	}
	until("what is due is overdue", row("late")+` === "? overdue, not confirmed" && document.querySelector('.counts [data-state=Overdue] b').textContent === "1"`)

	server.comes()
	until("it is connected again", `document.getElementById("away").hidden && !document.body.classList.contains("lost")`)
	until("the state is one of now again", row("magnetometer")+` === "● flowing"`)
	until("and so are line and level", line+` === "live, means of 5 s" && document.getElementById("level").innerText === "level storm"`)
}
