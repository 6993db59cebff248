// SPDX-License-Identifier: Apache-2.0

package feedserver_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// stall connects a client that never reads: to the server by a proxy that passes
// on so many bytes a second (0: none) of what the server sends.
func (l *lab) slowly(c *client, bytesPerSecond int) {
	l.t.Helper()
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = proxy.Close() })
	to := c.server.Address()
	go func() {
		for {
			in, err := proxy.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			_ = out.(*net.TCPConn).SetReadBuffer(16 << 10)
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() {
				defer in.Close()
				b := make([]byte, max(bytesPerSecond/20, 1))
				n, err := io.ReadAtLeast(out, b, 1) // the answer to the handshake
				for first := true; err == nil; first = false {
					if _, err = in.Write(b[:n]); err != nil {
						return
					}
					if !first && bytesPerSecond == 0 {
						select {} // the test's end closes both
					}
					time.Sleep(50 * time.Millisecond)
					n, err = out.Read(b)
				}
			}()
		}
	}()
	conn, _, err := websocket.Dial(l.t.Context(), "ws://"+proxy.Addr().String()+"/feeds/all/ws?consumer="+c.name,
		&websocket.DialOptions{Subprotocols: []string{wire.SubprotocolBinary}, HTTPHeader: bearer(c.name)})
	if err != nil {
		l.t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	c.conn, c.stop = conn, func() { _ = conn.CloseNow() }
	l.t.Cleanup(c.stop)
}

// A consumer that takes nothing and one on a slow link do not affect others: fast ones get
// everything, memory stays bounded, and the slow one gets everything later.
func TestSlowHarmNobody(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("fast", wire.DeliveryWebSocket), consumer("slow", wire.DeliveryWebSocket), consumer("stalled", wire.DeliveryWebSocket),
		consumer("stream", wire.DeliveryServerSentEvents))
	f := l.start("--ring-size", "2097152")
	const messages, size = 500, 40_000
	slow := l.client(f, "slow")
	l.slowly(slow, 2_000_000)
	for range 20 {
		stalled, _ := net.Dial("tcp", f.Address())
		if stalled == nil {
			t.Fatal("no connection")
		}
		t.Cleanup(func() { _ = stalled.Close() })
		_ = stalled.(*net.TCPConn).SetReadBuffer(4096)
		_, err := io.WriteString(stalled, "GET /feeds/all/ws?consumer=stalled HTTP/1.1\r\nHost: feeds\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer stalled-token\r\n\r\n")
		if err != nil {
			t.Fatal(err)
		}
	}
	testenv.Await(t, "20 are connected", func() bool { return metric(t, f, "substorm_feed_connections", `"stalled"`) == 20 })
	before := metric(t, f, "process_resident_memory_bytes", "")
	var fast sync.WaitGroup
	for n := range 6 {
		c := l.client(f, "fast")
		if n == 0 {
			c.name, c.events = "stream", true
		}
		c.connect()
		fast.Go(func() { c.expect(0, messages) })
	}
	most, behind := before, 0.
	look := func() {
		most = max(most, metric(t, f, "process_resident_memory_bytes", ""))
		behind = max(behind, metric(t, f, "substorm_feed_lag_messages", `"stalled"`))
	}
	for n := range messages {
		l.telemetry("mag-1", 1, size)
		if n%50 == 0 {
			look()
		}
	}
	fast.Wait()
	if t.Failed() {
		return
	}
	testenv.Await(t, "the stalled ones are seen to stall", func() bool {
		look()
		return behind > messages/2
	})
	slow.expect(0, messages)
	if look(); most-before > 100<<20 {
		t.Errorf("memory grew from %.0f to %.0f bytes, %d bytes were sent", before, most, messages*size)
	}
	if lag := metric(t, f, "substorm_feed_lag_messages", `"fast"`); lag != 0 {
		t.Errorf("the fast one lags by %.0f messages", lag)
	}
}

// A consumer whose pace is bounded gets everything, no faster; beyond maxLag it gets the newest,
// and a report of what it does not get.
func TestMaxLag(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("paced", wire.DeliveryWebSocket, func(c *wire.ConsumerEntry) {
		c.Flow.MaxBytesPerSecond, c.Flow.MaxLagMillis = 20_000, 1000
	}))
	f := l.start("--ring-size", "1048576")
	c := l.client(f, "paced")
	c.connect()
	const messages = 300
	for range messages {
		l.telemetry("mag-1", 2, 10_000)
	}
	c.until("the newest, and a gap record", func() bool {
		return len(c.datagrams) > 0 && c.datagrams[len(c.datagrams)-1] == 2*messages-1 && len(c.gaps) > 0
	})
	var missing uint64
	for _, g := range c.gaps {
		if g.Reason != wire.GapMaxLag || !g.Exact || g.Consumer != "paced" || g.Stream != wire.ObservationStream(site) {
			t.Errorf("gap %+v", g)
		}
		missing += g.Count
	}
	last, whole := -1, uint64(0)
	for i, n := range c.datagrams {
		if n <= last {
			t.Fatalf("%d comes after %d", n, last)
		}
		if n%2 == 0 && i+1 < len(c.datagrams) && c.datagrams[i+1] == n+1 {
			whole++
		}
		last = n
	}
	if whole+missing != messages {
		t.Errorf("%d messages came whole and %d are said to be missing, of %d", whole, missing, messages)
	}
	if len(c.datagrams)+int(c.replaced) != 2*messages {
		t.Errorf("%d datagrams came and %d were replaced, of %d", len(c.datagrams), c.replaced, 2*messages)
	}
	if got := metric(t, f, "substorm_feed_dropped_total", `reason="Replaced"`); got != float64(c.replaced) {
		t.Errorf("%.0f are counted as replaced, the client was told of %d", got, c.replaced)
	}
}

// Latest gives the newest of each source and counts the others, Sample one of each
// interval.
func TestLatestAndSample(t *testing.T) {
	t.Parallel()
	l := newLab(t,
		consumer("latest", wire.DeliveryWebSocket, func(c *wire.ConsumerEntry) {
			c.Flow.Mode, c.Flow.MaxBytesPerSecond = wire.FlowLatest, 2000
		}),
		consumer("sample", wire.DeliveryServerSentEvents, func(c *wire.ConsumerEntry) {
			c.Flow.Mode, c.Flow.IntervalMillis = wire.FlowSample, 100
		}),
	)
	f := l.start()
	latest, sample := l.client(f, "latest"), l.client(f, "sample")
	sample.events = true
	latest.connect()
	sample.connect()
	const rounds, each = 50, 20
	for range rounds {
		l.telemetry("mag-1", each, 1000)
		l.telemetry("mag-2", each, 1000)
		time.Sleep(10 * time.Millisecond) // the rounds last for several intervals of the sample
	}
	const total = 2 * rounds * each
	for _, c := range []*client{latest, sample} {
		c.until("all to be given or counted", func() bool { return len(c.datagrams)+int(c.replaced+c.sampled) == total })
		if len(c.gaps) > 0 {
			t.Errorf("%s: %d datagrams of %d, gaps %+v", c.name, len(c.datagrams), total, c.gaps)
		}
		var newest [2]int
		for _, n := range c.datagrams {
			source := n / each % 2
			if n < newest[source] {
				t.Errorf("%s: %d comes after %d", c.name, n, newest[source])
			}
			newest[source] = n
		}
		if newest != [2]int{total - each - 1, total - 1} {
			t.Errorf("%s: the newest are %v", c.name, newest)
		}
	}
	if latest.sampled != 0 || sample.sampled == 0 || latest.replaced == 0 {
		t.Errorf("latest: %d sampled; sample: %d; latest replaced %d", latest.sampled, sample.sampled, latest.replaced)
	}
	if got := metric(t, f, "substorm_feed_dropped_total", `reason="Replaced"`); got != float64(latest.replaced+sample.replaced) {
		t.Errorf("%.0f are counted as replaced, clients were told of %d", got, latest.replaced+sample.replaced)
	}
}

// Priority Urgent drops what does not fit into its queue, and says where.
func TestUrgentOverflows(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("urgent", wire.DeliveryWebSocket, func(c *wire.ConsumerEntry) {
		c.Flow.Priority, c.Flow.MaxBytesPerSecond = wire.PriorityUrgent, 50_000
	}), consumer("normal", wire.DeliveryWebSocket))
	f := l.start()
	urgent, normal := l.client(f, "urgent"), l.client(f, "normal")
	urgent.connect()
	normal.connect()
	const messages = 600
	for range messages {
		l.telemetry("mag-1", 1, 1000)
	}
	normal.expect(0, messages)
	missing := func() (n int) {
		for _, g := range urgent.gaps {
			if g.Reason != wire.GapOverflow || !g.Exact {
				t.Errorf("gap %+v", g)
			}
			n += int(g.Count)
		}
		return n
	}
	urgent.until("all to be given or counted", func() bool { return len(urgent.datagrams)+missing() == messages })
	if missing() == 0 {
		t.Error("nothing was dropped")
	}
}

// A client that takes nothing is let go in the end, and a stalled one that comes
// again misses nothing.
func TestStalledComesAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, consumer("c", wire.DeliveryWebSocket))
	f := l.start("--ring-size", "1048576")
	c := l.client(f, "c")
	c.connect()
	l.telemetry("mag-1", 1, 1000)
	c.expect(0, 1)
	for range 100 { // far more than the kernels hold
		l.telemetry("mag-1", 1, 200_000)
	}
	testenv.Await(t, "the client is let go", func() bool { return metric(t, f, "substorm_feed_connections", `"c"`) == 0 })
	for {
		if err := c.read(); err != nil {
			var closed websocket.CloseError
			if errors.As(err, &closed) {
				t.Errorf("closed with %v", closed)
			}
			break
		}
	}
	c.connect()
	c.expect(0, 101)
}
