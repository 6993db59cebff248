// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
)

const (
	// anonymousAddresses is from how many addresses an anonymous client comes, and
	// perAddress how many connections it keeps open from each.
	anonymousAddresses, perAddress = 200, 5
	// large is an object whose bytes no buffer takes: an answer with them lasts as long as its
	// client likes.
	large, largeRows = "large.csv", 100_000
)

// floods are the requests of an anonymous client at endpoints whose first request in asks is not
// the slowest one.
var floods = map[string][]string{
	"/archive/":                   {"/archive/open/n/" + large},
	"/bundle/{file}":              {"/bundle/open.tar"},
	"/bundle.tar":                 {"/bundle.tar?instrument=open"},
	"/bundle.tar.zst":             {"/bundle.tar.zst?instrument=open"},
	"/hapi/":                      {"/hapi/data?dataset=open/values&start=$hours&stop=$stop"},
	"GET /feeds/{feed}/events":    {"/feeds/all/events?consumer=events-of-all", "/feeds/all/events?consumer=events&ticket=x"},
	"GET /feeds/{feed}/ws":        {"/feeds/all/ws?consumer=ws-of-all", "/feeds/all/ws?consumer=ws&ticket=x"},
	"POST /feeds/{feed}/tickets":  {"/feeds/all/tickets?consumer=events", "/feeds/all/tickets?consumer=events-of-all"},
	"POST /mirror/objects.tar":    {"/mirror/objects.tar\n" + question(open, "$date")},
	"/latest/{instrument}/events": {"/latest/open/events"},
	"/latest/{instrument}":        {"/latest/open"},
}

// An anonymous client that comes from 200 addresses, asks at an endpoint again and again, takes
// next to nothing of what it is answered, or sends the head of a request alone, does not keep out
// readers with a token, neither there nor elsewhere.
func TestAnonymousClientsKeepNoReaderOut(t *testing.T) {
	t.Parallel()
	l := newEndpointsLab(t, func(c *Config) {
		c.MaxSockets, c.MaxConnections, c.ArchiveSize = 600, 24, minArchive
	})
	l.sendLarge()
	l.until(pathOf(hidden), http.StatusOK)
	l.until(pathOf(fresh), http.StatusOK)
	for _, pattern := range []string{"/archive/", "/bundle.tar", "/hapi/"} {
		l.takesLong(l.fill(floods[pattern][0]))
	}
	for _, pattern := range l.server.endpoints.Endpoints() {
		t.Run(pattern, func(t *testing.T) {
			method, _, found := strings.Cut(pattern, " ")
			if !found {
				method = http.MethodGet
			}
			paths := floods[pattern]
			if paths == nil {
				paths = []string{asks[pattern][0].path}
			}
			for i, path := range paths {
				paths[i] = l.fill(path)
			}
			end := l.flood(t, method, paths)
			defer end()
			for _, a := range asks[pattern] {
				l.answers(t, method, l.fill(a.path), a.want(method, insider))
			}
			l.answers(t, http.MethodGet, pathOf(hidden), http.StatusOK)
			l.answers(t, http.MethodGet, "/feeds/all/events?consumer=events", http.StatusOK)
		})
	}
}

// sendLarge sends the object large of the instrument open.
func (l *endpointsLab) sendLarge() {
	l.t.Helper()
	var rows strings.Builder
	for i := range largeRows {
		fmt.Fprintf(&rows, "%s,%d\n", l.sent.Add(time.Duration(i-largeRows)*time.Second).Format(time.RFC3339), i)
	}
	l.send(open, large, rows.String())
	l.until("/archive/open/n/"+large, http.StatusOK)
}

// takesLong fails unless an anonymous client is answered with more than the kernel takes at
// a time: one that takes nothing keeps what that needs, else a flood of such shows nothing.
func (l *endpointsLab) takesLong(path string) {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, "http://"+l.address()+path, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || n < 4*endpoint.SendBuffer {
		l.t.Fatalf("GET %s: %d, %d bytes, %v: that takes no time", path, resp.StatusCode, n, err)
	}
}

// fill fills in the times and the port of a path.
func (l *endpointsLab) fill(path string) string {
	return strings.NewReplacer("$port", fmt.Sprint(l.port), "$today", l.sent.Format("2006/01/02"), "$date", l.sent.Format(time.DateOnly), "$hours", l.sent.Add(-6*time.Hour).Format(time.RFC3339),
		"$start", l.sent.Add(-time.Minute).Format(time.RFC3339), "$stop", l.sent.Add(time.Minute).Format(time.RFC3339)).Replace(path)
}

// answers asks as the insider does, by a connection of its own.
func (l *endpointsLab) answers(t *testing.T, method, path string, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r := l.newRequest(ctx, method, path)
	r.SetBasicAuth("", insider+"-token")
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(r)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != want {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		t.Errorf("%s %s: %d, want %d: %s", method, path, resp.StatusCode, want, said)
		return
	}
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	}
}

// A client that shows an unknown token at any endpoint is refused, and soon has to wait; no other
// client has to.
func TestGuessesAreSlowedDownAtEveryEndpoint(t *testing.T) {
	t.Parallel()
	l := newEndpointsLab(t)
	l.until(pathOf(hidden), http.StatusOK)
	address := netip.MustParseAddr("127.0.4.0")
	for pattern, all := range asks {
		method, _, found := strings.Cut(pattern, " ")
		if !found {
			method = http.MethodGet
		}
		if method == http.MethodOptions { // it reveals nothing
			continue
		}
		address = address.Next()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: address.AsSlice()}}
		c := &http.Client{Transport: &http.Transport{DialContext: d.DialContext}}
		answered := map[int]int{}
		for n := 0; answered[http.StatusTooManyRequests] == 0 && n < 200; n++ {
			r := l.newRequest(t.Context(), method, l.fill(all[0].path))
			r.Header.Set("Authorization", fmt.Sprint("Bearer guess-", n))
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			answered[resp.StatusCode]++
		}
		if answered[http.StatusUnauthorized] == 0 || answered[http.StatusTooManyRequests] != 1 || len(answered) != 2 {
			t.Errorf("%s: answers %v", pattern, answered)
		}
	}
	l.answers(t, http.MethodGet, pathOf(hidden), http.StatusOK)
}

// flood asks from all addresses until end; it returns when each connection was
// answered, or waits for that.
func (l *endpointsLab) flood(t *testing.T, method string, paths []string) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var asked, running sync.WaitGroup
	address := netip.MustParseAddr("127.0.1.0")
	for range anonymousAddresses {
		address = address.Next()
		for i := range perAddress {
			path, question, posts := strings.Cut(paths[i%len(paths)], "\n")
			head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: archive\r\nAccept: */*\r\n", method, path)
			switch {
			case i == 1: // a body that never comes
				head += "Content-Length: 1000\r\n\r\n"
			case i == 2: // a head that never ends
			case strings.Contains(head, "/ws?"):
				head += "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
			case posts:
				head += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(question), question)
			default:
				head += "\r\n"
			}
			asked.Add(1)
			once := sync.OnceFunc(asked.Done)
			running.Go(func() {
				for ctx.Err() == nil {
					hold(ctx, address, l.address(), head, once)
				}
				once()
			})
		}
	}
	asked.Wait()
	return func() { stop(); running.Wait() }
}

// hold asks once, and takes a few bytes at a time of what it is answered until the server
// has enough of it.
func hold(ctx context.Context, from netip.Addr, to, head string, asked func()) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	again := time.NewTicker(250 * time.Millisecond)
	defer again.Stop()
	conn, err := d.DialContext(ctx, "tcp", to)
	if err == nil {
		defer conn.Close()
		_, err = io.WriteString(conn, head)
	}
	turns := 0
	for b := make([]byte, 64); err == nil; turns++ {
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		var n int
		if n, err = conn.Read(b); isTimeout(err) {
			err = nil
		}
		if n > 0 || turns >= 4 { // answered, or it waits there
			asked()
		}
	}
	asked()
	select {
	case <-again.C:
	case <-ctx.Done():
	}
}

func isTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}
