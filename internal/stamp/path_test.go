// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stamp

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/substorm/substorm/internal/testenv"
)

// counted counts verdicts.
type counted struct {
	mu sync.Mutex
	by map[Verdict]int
}

func (c *counted) count(v Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[Verdict]int{}
	}
	c.by[v]++
}

func (c *counted) of(v Verdict) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[v]
}

func knowsAll(netip.Addr) bool { return true }

// reflecting runs a reflector until the test ends.
func reflecting(t *testing.T, address string, cfg ReflectorConfig, change ...func(*Reflector)) *Reflector {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	r, err := ListenReflector(address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

// A session and a reflector on this machine, by IPv4 and IPv6 on one socket: all is
// answered, none is lost.
func TestLoopback(t *testing.T) {
	var verdicts counted
	r := reflecting(t, ":0", ReflectorConfig{Knows: knowsAll, Count: verdicts.count})
	port := strconv.Itoa(int(r.Address().Port()))
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			s := NewSession(SessionConfig{Address: net.JoinHostPort(host, port), Interval: MinInterval})
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { s.Run(ctx) })
			defer running.Wait()
			defer cancel()
			testenv.Await(t, "five packets are answered", func() bool { return s.Report(time.Now()).Answered >= 5 })
			got := s.Report(time.Now())
			if got.Min <= 0 || got.Min > got.Mean || got.Mean > got.Max || got.P99 > got.Max || got.LostOut+got.LostBack > 0 {
				t.Errorf("%+v", got)
			}
		})
	}
	if verdicts.of(Reflected) < 10 {
		t.Errorf("%+v", verdicts.by)
	}
}

// The answer leaves from the address to which the packet came, tells with which TTL
// and counts by session; it is never longer than what it answers.
func TestReflector(t *testing.T) {
	var verdicts counted
	r := reflecting(t, ":0", ReflectorConfig{Count: verdicts.count, Knows: func(a netip.Addr) bool { return a != netip.MustParseAddr("127.0.0.9") }})
	at := func(host string) *net.UDPAddr {
		return &net.UDPAddr{IP: net.ParseIP(host), Port: int(r.Address().Port())}
	}
	dial := func(from, to string) *net.UDPConn {
		t.Helper()
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, at(to))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	ask := func(c *net.UDPConn, n uint32, padding int) Reply {
		t.Helper()
		b := append(Request{Sequence: n, Sent: TimestampOf(time.Now()), Error: unknownError}.Append(nil), make([]byte, padding)...)
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		in := make([]byte, 2048)
		got, err := c.Read(in) // a connected socket takes what comes from where it sent to
		if err != nil {
			t.Fatal(err)
		}
		if got != Size {
			t.Errorf("%d bytes of %d are answered with %d", n, len(b), got)
		}
		reply, err := ParseReply(in[:got])
		if err != nil || reply.Request.Sequence != n {
			t.Fatalf("%+v, %v", reply, err)
		}
		return reply
	}
	one, two := dial("127.0.0.1", "127.0.0.7"), dial("127.0.0.1", "127.0.0.1")
	for i := range uint32(3) {
		reply := ask(one, 100+i, int(i)*100)
		if reply.Sequence != i || reply.TTL != 64 || reply.Sent.Sub(reply.Received) < 0 {
			t.Errorf("%+v", reply)
		}
	}
	if reply := ask(two, 7, 0); reply.Sequence != 0 {
		t.Errorf("another session is counted with the first: %+v", reply)
	}
	unknown := dial("127.0.0.9", "127.0.0.1")
	if _, err := unknown.Write(Request{Error: unknownError}.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Write([]byte("nonsense")); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "the unknown sender and the nonsense are counted", func() bool { return verdicts.of(UnknownSender) == 1 && verdicts.of(Malformed) == 1 })
	for range 3 * sessionBurst {
		if _, err := two.Write(Request{Error: unknownError}.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Await(t, "the session is limited", func() bool { return verdicts.of(RateLimited) >= sessionBurst })
	if reply := ask(one, 200, 0); reply.Sequence != 3 {
		t.Errorf("one session's limit is another's: %+v", reply)
	}
	_ = unknown.SetReadDeadline(time.Now())
	if n, err := unknown.Read(make([]byte, Size)); err == nil {
		t.Errorf("an unknown sender gets %d bytes", n)
	}
}

// However many sessions there are, only so many are remembered.
func TestSessionsAreBounded(t *testing.T) {
	r := newReflector(nil, ReflectorConfig{Knows: knowsAll})
	r.total = rate.NewLimiter(rate.Inf, 0)
	now := noon
	request := Request{Error: unknownError}.Append(nil)
	for i := range 3 * maxSessions {
		var out []byte
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 4000)
		if v := r.reflect(received{payload: request, from: from, at: now}, now, &out); v != Reflected || len(out) != Size {
			t.Fatalf("%v, %d bytes", v, len(out))
		}
		now = now.Add(time.Millisecond)
	}
	if n := len(r.sessions); n > maxSessions {
		t.Errorf("%d sessions are remembered", n)
	}
}

// Without a reflector every packet counts as lost, it is unknown where, and the session continues until there is a reflector.
func TestNobodyThere(t *testing.T) {
	free, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	address := free.LocalAddr().String()
	free.Close()
	s := NewSession(SessionConfig{Address: address})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	later := func() time.Time { return time.Now().Add(Patience) }
	testenv.Await(t, "three packets are sent to nobody", func() bool { return s.Report(later()).Sent >= 3 })
	if r := s.Report(later()); r.Answered != 0 || r.LostOut+r.LostBack != 0 {
		t.Errorf("%+v", r)
	}
	reflecting(t, address, ReflectorConfig{Knows: knowsAll})
	testenv.Await(t, "somebody answers three packets", func() bool { return s.Report(time.Now()).Answered >= 3 })
}

func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"gateway.example": "gateway.example:8862", "192.0.2.1": "192.0.2.1:8862", "192.0.2.1:30862": "192.0.2.1:30862",
		"2001:db8::1": "[2001:db8::1]:8862", "[2001:db8::1]:30862": "[2001:db8::1]:30862",
		"": "", ":8862": "", "a:b:c": "", "a:0": "", "a:70000": "", "a:http": "", "[::1]": "",
	} {
		got, err := Address(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}
