// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/substorm/substorm/operator/surge"
)

// kpPoller asks a server for Kp, at the time of the examples.
func kpPoller(t *testing.T, url string) (*Poller, *fetcher) {
	t.Helper()
	source, err := NewSWPC(surge.Kp, url)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPoller(Config{Name: "noaa-kp", Source: source, Interval: time.Minute, Now: func() time.Time { return storm }})
	if err != nil {
		t.Fatal(err)
	}
	return p, source.(*swpc).fetch
}

const threeKp = "15:00+3h0m0s=2.33, 18:00+3h0m0s=4.67, 21:00+3h0m0s=7.33"

// hostile are answers that must yield no signal, and the message about each.
func hostile(other string) map[string]struct {
	answer http.HandlerFunc
	want   string
} {
	type one = struct {
		answer http.HandlerFunc
		want   string
	}
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	to := func(url string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url, http.StatusFound) }
	}
	return map[string]one{
		"shape changed":        {text(`{"kp":[{"at":"2026-08-30T18:00:00","index":4}]}`), "is not an array of records as SWPC publishes them"},
		"value 99":             {text(`[{"time_tag":"2026-08-30T18:00:00","Kp":99}]`), "Kp 99 is out of range: 0 to 9"},
		"not a number":         {text(`[{"time_tag":"2026-08-30T18:00:00","Kp":"NaN"}]`), "Kp NaN is out of range"},
		"clock skew":           {text(`[{"time_tag":"2026-08-31T22:30:00","Kp":5}]`), "a time to come: this clock says 2026-08-30T22:30:00Z"},
		"empty":                {text(`[]`), "is an array without records"},
		"nothing":              {text(``), "is not JSON, or was cut off"},
		"garbage":              {text("\x00\xff\x1f garbage"), "is not JSON, or was cut off"},
		"500":                  {status(http.StatusInternalServerError), "answers 500 Internal Server Error: it is asked again"},
		"404":                  {status(http.StatusNotFound), "declare the URL of another one"},
		"403":                  {status(http.StatusForbidden), "access is denied"},
		"202":                  {status(http.StatusAccepted), "answers 202 Accepted, and not 200"},
		"304 that nobody asks": {status(http.StatusNotModified), "answers 304 Not Modified"},
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, "<html>Are you a robot?</html>")
		}, "answers a page for people"},
		"truncated": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(kpObjects)))
			fmt.Fprint(w, kpObjects[:50])
		}, "cut its answer off"},
		"no HTTP": {func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				fmt.Fprint(c, "SSH-2.0-OpenSSH\r\n")
				c.Close()
			}
		}, "does not answer"},
		"never begins": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "did not answer to the end within"},
		"never ends": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "[")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "did not answer to the end within"},
		"another host":     {to(other), "redirects to " + other},
		"loopback by name": {to(strings.Replace(other, "127.0.0.1", "localhost", 1)), "redirects to http://localhost"},
		"metadata":         {to("http://169.254.169.254/latest/meta-data"), "redirects to http://169.254.169.254"},
		"a very long host": {to("http://" + strings.Repeat("x.", 5000) + "org"), "redirects to http://x.x."},
		"another protocol": {to("file:///etc/passwd"), "redirects to file://"},
		"round and round":  {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) }, "redirects more than 5 times"},
		"control characters": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://a%C2%9B31m%E2%80%AE.example.org/")
			w.WriteHeader(http.StatusFound)
		}, "redirects to http://a 31m .example.org"},
		"a time before the year 0": {text(`[{"time_tag":-90000000000,"Kp":3}]`), "nothing was published before 1900"},
		"a time without a year":    {text(`[{"time_tag":"0000-12-31T21:00:00","Kp":3}]`), "nothing was published before 1900"},
		"objects in objects":       {text(strings.Repeat(`{"a":`, maxValues/ofObject+1)), "has more than 500000 values"},
		"too many brackets":        {text("[" + strings.Repeat("[],", maxValues) + "[]]"), "has more than 500000 values"},
	}
}

// A source that fails keeps its samples, and its error names it and says what to do.
func TestHostileAnswers(t *testing.T) {
	elsewhere := newNOAA(t)
	elsewhere.says(kpObjects)
	for name, c := range hostile(elsewhere.URL) {
		t.Run(name, func(t *testing.T) {
			server := newNOAA(t)
			server.says(kpObjects)
			p, fetch := kpPoller(t, server.URL+"/products/kp.json?key=secret")
			p.ask(t.Context())
			if state := p.State(); state.Error != "" || !state.LastAnswered.Equal(storm) {
				t.Fatalf("state %+v", state)
			}
			if strings.HasPrefix(name, "never") {
				fetch.patience = 100 * time.Millisecond
			}
			server.answers(c.answer)
			wait := p.ask(t.Context())
			state := p.State()
			if !strings.HasPrefix(state.Error, "source noaa-kp: ") || !strings.Contains(state.Error, c.want) {
				t.Errorf("error %q, want %q", state.Error, c.want)
			}
			if len(state.Error) > maxError+3 {
				t.Errorf("the error has %d bytes", len(state.Error))
			}
			if strings.ContainsFunc(state.Error, func(c rune) bool { return !unicode.IsPrint(c) }) {
				t.Errorf("the error steers a terminal: %q", state.Error)
			}
			if strings.Contains(state.Error, "secret") {
				t.Errorf("the error tells the query: %s", state.Error)
			}
			if got := told(p.Signals()[0].Samples); got != threeKp {
				t.Errorf("samples %s", got)
			}
			if p.state.Requests[resultFailed] != 1 || wait < time.Minute {
				t.Errorf("results %v, next in %v", p.state.Requests, wait)
			}
			fetch.patience = patience
			server.says(kpObjects)
			if p.ask(t.Context()); p.State().Error != "" {
				t.Errorf("the error remains: %s", p.State().Error)
			}
		})
	}
	if n := elsewhere.asked.Load(); n != 0 {
		t.Errorf("another host was asked %d times", n)
	}
}

// A source that answers without end is cut off.
func TestGigabyte(t *testing.T) {
	server := newNOAA(t)
	p, _ := kpPoller(t, server.URL)
	var written atomic.Int64
	left := make(chan struct{})
	server.answers(func(w http.ResponseWriter, _ *http.Request) {
		defer close(left)
		chunk := []byte(strings.Repeat(" ", 1<<20))
		for range 1024 {
			n, err := w.Write(chunk)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	p.ask(t.Context())
	if got := p.State().Error; !strings.Contains(got, "answers more than 8 MiB") {
		t.Errorf("error %q", got)
	}
	<-left
	if n := written.Load(); n >= 1<<30 {
		t.Errorf("%d bytes were taken", n)
	}
}

// A document that was answered is asked for again only if it changed.
func TestNotModified(t *testing.T) {
	server := newNOAA(t)
	p, _ := kpPoller(t, server.URL)
	var none, since string
	server.answers(func(w http.ResponseWriter, r *http.Request) {
		if agent := r.Header.Get("User-Agent"); !strings.HasPrefix(agent, "substorm/") {
			t.Errorf("User-Agent %q", agent)
		}
		none, since = r.Header.Get("If-None-Match"), r.Header.Get("If-Modified-Since")
		w.Header().Set("ETag", `"a"`)
		w.Header().Set("Last-Modified", "Sun, 30 Aug 2026 22:00:00 GMT")
		if none == `"a"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, kpObjects)
	})
	p.ask(t.Context())
	if none != "" || since != "" {
		t.Errorf("the first question has %q, %q", none, since)
	}
	p.ask(t.Context())
	if none != `"a"` || since != "Sun, 30 Aug 2026 22:00:00 GMT" || p.state.Requests[resultUnchanged] != 1 {
		t.Errorf("the second question has %q, %q; results %v", none, since, p.state.Requests)
	}
	if got := told(p.Signals()[0].Samples); got != threeKp || p.State().Error != "" {
		t.Errorf("samples %s, error %q", got, p.State().Error)
	}
	// An answer that cannot be read is not taken for one that is known.
	server.answers(func(w http.ResponseWriter, r *http.Request) {
		none = r.Header.Get("If-None-Match")
		w.Header().Set("ETag", `"b"`)
		fmt.Fprint(w, `[]`)
	})
	p.ask(t.Context())
	p.ask(t.Context())
	if none != `"a"` || p.State().Error == "" {
		t.Errorf("after an answer that could not be read the question has %q, and the error is %q", none, p.State().Error)
	}
}

// A validator that the server refuses is not sent to it again, and a document with samples of a time to come is read again when it has
// come, though it did not change.
func TestValidatorsAreForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		tag, body string
		then      int // status of the second answer
	}{
		"too long":         {tag: `"` + strings.Repeat("a", maxValidator) + `"`, body: kpObjects, then: http.StatusOK},
		"refused":          {tag: `"a"`, body: kpObjects, then: http.StatusRequestHeaderFieldsTooLarge},
		"some come sooner": {tag: `"a"`, body: `[{"time_tag":"2026-08-30T18:00:00","Kp":4.67},{"time_tag":"2026-08-31T00:00:00","Kp":5}]`, then: http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			server := newNOAA(t)
			p, _ := kpPoller(t, server.URL)
			n, last := 0, ""
			server.answers(func(w http.ResponseWriter, r *http.Request) {
				last = r.Header.Get("If-None-Match")
				if n++; n == 2 && c.then != http.StatusOK {
					w.WriteHeader(c.then)
					return
				}
				w.Header().Set("ETag", c.tag)
				fmt.Fprint(w, c.body)
			})
			for range 3 {
				p.ask(t.Context())
			}
			if last != "" || p.State().Error != "" {
				t.Errorf("the last question has If-None-Match %.20q; error %q", last, p.State().Error)
			}
		})
	}
}

// A source that says when it may be asked again is not asked before.
func TestRetryAfter(t *testing.T) {
	server := newNOAA(t)
	for _, c := range []struct {
		after string
		least time.Duration
	}{
		{"420", 7 * time.Minute},
		{"Sun, 30 Aug 2026 22:50:00 GMT", 20 * time.Minute},
		{"31536000", time.Hour},
		{"99999999999999999999", time.Minute},
		{"-5", time.Minute},
		{"soon", time.Minute},
	} {
		p, _ := kpPoller(t, server.URL)
		server.answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", c.after)
			w.WriteHeader(http.StatusTooManyRequests)
		})
		wait := p.ask(t.Context())
		if wait < c.least || wait > c.least+c.least/9 {
			t.Errorf("Retry-After %s: asked again in %v, want %v", c.after, wait, c.least)
		}
		if got := p.State().Error; !strings.Contains(got, "answers 429 Too Many Requests: raise the source's interval") {
			t.Errorf("error %q", got)
		}
	}
}

// A server may send us on to itself.
func TestRedirectToItself(t *testing.T) {
	server := newNOAA(t)
	server.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/moved.json" {
			http.Redirect(w, r, "/moved.json", http.StatusMovedPermanently)
			return
		}
		fmt.Fprint(w, kpObjects)
	})
	p, _ := kpPoller(t, server.URL+"/kp.json")
	p.ask(t.Context())
	if got := told(p.Signals()[0].Samples); got != threeKp {
		t.Errorf("samples %s, error %q", got, p.State().Error)
	}
}

func TestReach(t *testing.T) {
	for _, c := range []struct {
		host, address string
		may           bool
	}{
		{"services.swpc.noaa.gov", "140.90.200.11", true},
		{"services.swpc.noaa.gov", "2610:20:8040:2::172", true},
		{"services.swpc.noaa.gov", "127.0.0.1", false},
		{"services.swpc.noaa.gov", "::1", false},
		{"services.swpc.noaa.gov", "::ffff:127.0.0.1", false},
		{"services.swpc.noaa.gov", "10.0.0.1", false},
		{"services.swpc.noaa.gov", "fd00::1", false},
		{"services.swpc.noaa.gov", "169.254.169.254", false},
		{"services.swpc.noaa.gov", "fe80::1", false},
		{"services.swpc.noaa.gov", "100.64.0.1", false},
		{"services.swpc.noaa.gov", "0.0.0.0", false},
		{"services.swpc.noaa.gov", "224.0.0.1", false},
		{"services.swpc.noaa.gov", "64:ff9b::a00:1", false},
		{"services.swpc.noaa.gov", "64:ff9b::8c5a:c80b", true},
		{"services.swpc.noaa.gov", "64:ff9b::a9fe:a9fe", false},
		{"services.swpc.noaa.gov", "64:ff9b::a83f:8110", false}, // Azure's
		{"services.swpc.noaa.gov", "168.63.129.16", false},
		{"services.swpc.noaa.gov", "64:ff9b:1::a00:1", false},
		{"services.swpc.noaa.gov", "::7f00:1", false},
		{"services.swpc.noaa.gov", "::ffff:0:7f00:1", false},
		{"services.swpc.noaa.gov", "2002:7f00:1::", false},
		{"services.swpc.noaa.gov", "2001:0:a00:1::", false},
		{"services.swpc.noaa.gov", "fec0::1", false},
		{"services.swpc.noaa.gov", "0.1.2.3", false},
		{"services.swpc.noaa.gov", "192.0.0.192", false},
		{"services.swpc.noaa.gov", "198.18.0.1", false},
		{"services.swpc.noaa.gov", "240.0.0.1", false},
		{"services.swpc.noaa.gov", "255.255.255.255", false},
		{"169.254.169.254", "169.254.169.254", false},
		{"::ffff:169.254.169.254", "169.254.169.254", false},
		{"fe80::1", "fe80::1", false},
		{"fd00:ec2::254", "fd00:ec2::254", false},
		{"metadata.svc", "fd00:ec2::254", false},
		{"metadata.svc", "100.100.100.200", false},
		{"127.0.0.1", "127.0.0.1", true},
		{"127.0.0.1", "127.0.0.2", false},
		{"::1", "::1", true},
		{"192.168.1.7", "192.168.1.7", true},
		{"LOCALHOST.", "127.0.0.1", true},
		{"localhost", "10.0.0.1", false},
		{"weather.monitoring.svc", "10.96.0.12", true},
		{"weather.monitoring.svc.cluster.local", "10.96.0.12", true},
		{"weather.monitoring.svc", "127.0.0.1", false},
		{"weather.monitoring.svc", "169.254.169.254", false},
		{"svc.example.org", "10.96.0.12", false},
	} {
		if got := addressCheck(c.host)("tcp", net.JoinHostPort(c.address, "443"), nil) == nil; got != c.may {
			t.Errorf("%s to %s: %v", c.host, c.address, got)
		}
	}
}

// A name of the public's that is resolved to a loopback is not connected to, whatever it was resolved to before.
func TestRebinding(t *testing.T) {
	server := newNOAA(t)
	server.says(kpObjects)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p, fetch := kpPoller(t, "http://weather.example.org:"+port+"/kp.json")
	fetch.client.Transport = transport("weather.example.org", loopbackResolver(t))
	p.ask(t.Context())
	if got := p.State().Error; !strings.Contains(got, "weather.example.org leads to 127.0.0.1") {
		t.Errorf("error %q", got)
	}
	if n := server.asked.Load(); n != 0 {
		t.Errorf("the loopback was asked %d times", n)
	}
}

// loopbackResolver asks a DNS server that resolves all names to 127.0.0.1.
func loopbackResolver(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func TestURLs(t *testing.T) {
	for _, url := range []string{"ftp://example.org/kp.json", "kp.json", "https:///kp.json",
		"https://user:secret@example.org/kp.json", "https://example.org/%zz?key=secret", "http://:80/kp.json?key=secret", "://", "file:///etc/passwd"} {
		_, err := NewSWPC(surge.Kp, url)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %v", url, err)
		}
	}
	if _, err := NewSWPC("Dst", ""); err == nil {
		t.Error("SWPC is asked for Dst")
	}
}
