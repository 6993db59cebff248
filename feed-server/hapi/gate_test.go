// SPDX-License-Identifier: Apache-2.0

package hapi_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/hapi"
	"github.com/substorm/substorm/internal/registry"
	"github.com/substorm/substorm/internal/wire"
)

// hasty is a listener whose connections have little space, and a tenth of a second for
// each write that has a deadline at all.
type hasty struct {
	net.Listener
	// bounded are the connections that have a deadline.
	bounded *atomic.Int64
}

func (l hasty) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &hastyConn{Conn: c, bounded: l.bounded}, c.(*net.TCPConn).SetWriteBuffer(4 << 10)
}

type hastyConn struct {
	net.Conn
	bounded *atomic.Int64
	has     atomic.Bool
}

func (c *hastyConn) SetWriteDeadline(t time.Time) error {
	has := !t.IsZero()
	if had := c.has.Swap(has); has && !had {
		c.bounded.Add(1)
	} else if had && !has {
		c.bounded.Add(-1)
	}
	if has {
		t = time.Now().Add(100 * time.Millisecond)
	}
	return c.Conn.SetWriteDeadline(t)
}

// TestStalled: a client that does not read gives its turn to another; one that does has
// its connection for another request.
func TestStalled(t *testing.T) {
	l := newLab(t, magnetometer())
	const hours = 10
	for i := range hours {
		all := make([]datagram, 3600)
		for j := range all {
			all[j] = sample(second(i*3600+j), fmt.Sprintf("%v,%v,3,4,x", rand.Float64(), rand.Float64()))
		}
		l.segment(t, "mag", "raw", uint64(1+i*3600), all...)
	}
	var bounded atomic.Int64
	server := l.server(t, func(w *ways) { w.Requests = 1 })
	server.Listener = hasty{server.Listener, &bounded}
	server.Start()
	data := hapi.Path + "/data?"
	for _, coding := range []string{"identity", "gzip"} {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAccept-Encoding: %s\r\n\r\n", data+between("mag/field", start, second(hours*3600)), coding)
		const head = "HTTP/1.1 200 OK\r\n"
		got := make([]byte, len(head))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != head {
			t.Fatalf("%q %v", got, err)
		}
		// It reads no more, and has the only turn.
		answer, err := server.Client().Get(server.URL + data + between("mag/field", start, second(1)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK || err != nil {
			t.Fatalf("%s: behind one who does not read: %s %s %v", coding, answer.Status, body, err)
		}
	}
	server.Close()
	if n := bounded.Load(); n != 2 {
		t.Errorf("%d connections have a deadline at their end, not the 2 that were not read from", n)
	}
}

// broken stores a segment whose second packet names an interface that the segment lacks.
func (l *lab) broken(t testing.TB, first uint64, at time.Time) *wire.Record {
	t.Helper()
	one, _, _ := newSegment(t, sample(at, "1,2,3,4,x"))
	data, from, to := newSegment(t, sample(at, "1,2,3,4,x"), sample(at.Add(time.Second), "1,2,3,4,x"), sample(at.Add(2*time.Second), "1,2,3,4,x"))
	data[len(one)+8] = 7
	return l.putSegment(t, "mag", "raw", first, 3, data, from, to)
}

// TestTold: the access check counts requests by instrument, and gets reports of damaged and missing
// objects.
func TestTold(t *testing.T) {
	l := newMagnetometer(t)
	damaged := l.segment(t, "mag", "raw", 100, sample(second(3600*3), "1,2,3,4,x"))
	damaged.Digest[0]++
	bad := damaged.ID
	gone := l.segment(t, "mag", "raw", 200, sample(second(3600*6), "1,2,3,4,x")).ID
	if err := l.store.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	// If the framing of a segment is broken, its digest says whether it came so.
	framing := l.broken(t, 300, second(3600*8))
	framing.Digest[0]++
	cut := framing.ID
	l.broken(t, 400, second(3600*10))
	told, counted := make(chan string, 1), make(chan string, 1)
	server := l.server(t, func(w *ways) {
		w.check.Damaged = func(instrument string, r wire.Record, missing bool) {
			told <- fmt.Sprint(instrument, " ", r.ID, " ", missing)
		}
		w.check.Count = func(instrument, _ string, _ endpoint.Class, status int, _ int64) {
			counted <- fmt.Sprint(instrument, " ", status)
		}
	})
	server.Start()
	for _, c := range []struct{ path, counted, told string }{
		{"/info?dataset=mag/field", "mag 200", ""},
		{"/info?dataset=none/field", " 404", ""},
		{"/data?" + between("mag/field", start, second(4)), "mag 200", ""},
		{"/data?" + between("mag/field", second(3600*3), second(3600*4)), "mag 500", "mag " + bad + " false"},
		{"/data?" + between("mag/field", second(3600*6), second(3600*7)), "mag 500", "mag " + gone + " true"},
		{"/data?" + between("mag/field", second(3600*8), second(3600*9)), "mag 500", "mag " + cut + " false"},
		{"/data?" + between("mag/field", second(3600*10), second(3600*11)), "mag 200", ""},
		{"/data?" + between("mag/field", start, second(3600*4)), "mag 0", "mag " + bad + " false"}, // broken off, before the first piece was full
	} {
		if answer, err := server.Client().Get(server.URL + hapi.Path + c.path); err == nil { // else it was broken off at once
			answer.Body.Close()
		}
		if got := <-counted; got != c.counted {
			t.Errorf("%s: counted as %q, not %q", c.path, got, c.counted)
		}
		got := ""
		select {
		case got = <-told:
		default:
		}
		if got != c.told {
			t.Errorf("%s: told %q, not %q", c.path, got, c.told)
		}
	}
}

// TestReady: while the instruments are not known yet, no client gets the answer that there are
// none.
func TestReady(t *testing.T) {
	l := newLab(t, magnetometer())
	l.serve(t, func(w *ways) { w.check.Registry = func() *registry.Snapshot { return &registry.Snapshot{} } })
	for _, path := range []string{"", "/catalog", "/info?dataset=mag/field", "/data?" + between("mag/field", start, second(1))} {
		path, query, _ := strings.Cut(path, "?")
		answer, body := l.get(t, path, query)
		if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" || !strings.Contains(string(body), `"code":1500`) {
			t.Errorf("%s: %s %v %s", path, answer.Status, answer.Header, body)
		}
	}
}
