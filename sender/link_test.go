// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sender

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// A link is a way to a peer as there are in the field: narrow, long, and not
// always there.
type link struct {
	t        *testing.T
	listener *net.TCPListener
	to       string
	// rate in bytes a second up, 0 for none; delay each way.
	rate  int
	delay time.Duration
	// dropAfter resets each connection after so many bytes up, 0 never.
	dropAfter int64
	// silent: bytes are dropped without a notice to either end.
	silent atomic.Bool
	// up are bytes that went up, drops connections that were reset.
	up, drops atomic.Int64
}

func newLink(t *testing.T, to string, change func(*link)) *link {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	k := &link{t: t, listener: l, to: to}
	change(k)
	var carrying sync.WaitGroup
	carrying.Go(func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			carrying.Go(func() { k.carry(c) })
		}
	})
	t.Cleanup(func() { l.Close(); carrying.Wait() })
	return k
}

func (k *link) address() string { return k.listener.Addr().String() }

// carry carries one connection until either side ends it.
func (k *link) carry(from *net.TCPConn) {
	conn, err := net.Dial("tcp", k.to)
	if err != nil {
		k.t.Error(err)
		return
	}
	to := conn.(*net.TCPConn)
	// As a radio: what does not fit waits at the sender.
	_ = from.SetReadBuffer(4 << 10)
	var both sync.WaitGroup
	both.Go(func() { k.pump(to, from, true) })
	both.Go(func() { k.pump(from, to, false) })
	both.Wait()
	from.Close()
	to.Close()
}

func (k *link) pump(to, from *net.TCPConn, up bool) {
	defer func() { // an end of either direction ends both
		_ = to.CloseWrite()
	}()
	chunk := make([]byte, 512)
	var carried int64
	for {
		_ = from.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		n, err := from.Read(chunk)
		if k.t.Context().Err() != nil {
			_, _ = to.SetLinger(0), to.Close()
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if k.silent.Load() {
			continue
		}
		time.Sleep(k.delay)
		if up && k.rate > 0 {
			time.Sleep(time.Duration(n) * time.Second / time.Duration(k.rate))
		}
		if up {
			k.up.Add(int64(n))
		}
		if carried += int64(n); up && k.dropAfter > 0 && carried > k.dropAfter {
			k.drops.Add(1)
			for _, c := range []*net.TCPConn{from, to} {
				_, _ = c.SetLinger(0), c.Close()
			}
			return
		}
		if _, werr := to.Write(chunk[:n]); werr != nil || err != nil {
			if err != nil && !errors.Is(err, io.EOF) {
				_, _ = to.SetLinger(0), to.Close()
			}
			if werr != nil {
				_, _ = from.SetLinger(0), from.Close()
			}
			return
		}
	}
}

// hole returns an address at which no machine answers, like the address of a machine that is
// switched off.
func hole(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
	for { // until its queue is full: then the kernel drops what comes
		c, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { c.Close() })
	}
}

// beating is a gateway that answers heartbeats by a clock of its own.
func beating(offset time.Duration, heard func(wire.Heartbeat)) func(*peer, *net.TCPConn) {
	return func(p *peer, c *net.TCPConn) {
		for {
			var prefix [wire.PrefixSize]byte
			if _, err := io.ReadFull(c, prefix[:]); err != nil {
				return
			}
			length, control := wire.ParsePrefix(prefix)
			body := make([]byte, length)
			if _, err := io.ReadFull(c, body); err != nil {
				return
			}
			if control {
				h, err := wire.Decode[wire.Heartbeat](body)
				if err != nil {
					p.t.Error(err)
				}
				received := time.Now().Add(offset)
				heard(h)
				_, _ = io.WriteString(c, wire.HeartbeatAnswer{Received: received, Answered: time.Now().Add(offset)}.Line())
				continue
			}
			r := wire.Receipt{Digest: sha256.Sum256(body), Bytes: length}
			p.mu.Lock()
			p.objects[r.Digest]++
			p.mu.Unlock()
			_, _ = io.WriteString(c, r.Line())
		}
	}
}

// beats are heartbeats that were heard.
type beats struct {
	mu  sync.Mutex
	all []wire.Heartbeat
}

func (b *beats) heard(h wire.Heartbeat) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, h)
}

// last is the last one, its zero value before the first.
func (b *beats) last() wire.Heartbeat {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.all) == 0 {
		return wire.Heartbeat{}
	}
	return b.all[len(b.all)-1]
}

// TestBrokenLink: over a link that is narrow and long and drops connections, all
// that came is received in the end, and the clock is measured.
func TestBrokenLink(t *testing.T) {
	const ahead = 37 * time.Minute
	var b beats
	p := newPeer(t, beating(ahead, b.heard))
	k := newLink(t, p.address(), func(k *link) { k.rate, k.delay, k.dropAfter = 200_000, 5*time.Millisecond, 30_000 })
	cfg, watched := serveConfig(t, wire.FramingLengthPrefixed, k.address())
	cfg.Queue.Heartbeat, cfg.Queue.NewestFirst, cfg.Queue.BackfillShare = 100*time.Millisecond, true, 0.2
	started(t, cfg)
	var texts []string
	for i := range 60 {
		texts = append(texts, strings.Repeat(fmt.Sprintf("frame %02d ", i), 200+i))
		put(t, watched, fmt.Sprint("frame-", i), texts[i])
	}
	waitFor(t, func() bool {
		h := b.last()
		return p.has(texts...) && len(owed(cfg)) == 0 && h.ClockOffset != nil && h.QueueObjects == 0 && h.Sent == 60
	})
	if k.drops.Load() == 0 {
		t.Error("the link dropped nothing: the test tests nothing")
	}
	h := b.last()
	off, trip := time.Duration(*h.ClockOffset), time.Duration(*h.RoundTrip)
	if (off-ahead).Abs() > trip/2+time.Millisecond || trip < 10*time.Millisecond {
		t.Errorf("measured %v in a round trip of %v; it is %v", off, trip, ahead)
	}
	t.Logf("%d connections were dropped, %d bytes went up for %d; offset %v, round trip %v", k.drops.Load(), k.up.Load(), len(strings.Join(texts, "")), off, trip)
}

// TestHole: a machine that is switched off costs each object a moment and not the
// time that a connection may take.
func TestHole(t *testing.T) {
	for _, framing := range []string{wire.FramingUntilClose, wire.FramingLengthPrefixed} {
		t.Run(framing, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, map[string]func(*peer, *net.TCPConn){wire.FramingUntilClose: good, wire.FramingLengthPrefixed: goodPipe(1)}[framing])
			cfg, watched := serveConfig(t, framing, hole(t), p.address())
			cfg.ConnectTimeout = time.Hour // the kernel would give up earlier, after two minutes: longer than this test waits
			started(t, cfg)
			var texts []string
			for i := range 20 {
				texts = append(texts, fmt.Sprint("frame ", i))
				put(t, watched, fmt.Sprint("frame-", i), texts[i])
			}
			waitFor(t, func() bool { return p.has(texts...) && len(owed(cfg)) == 0 })
		})
	}
}

// TestLinkFallsSilent: a link that takes everything and brings nothing keeps
// objects no longer than a receipt may take; when it comes back, so does the sending.
func TestLinkFallsSilent(t *testing.T) {
	p := newPeer(t, goodPipe(1))
	k := newLink(t, p.address(), func(*link) {})
	cfg, watched := serveConfig(t, wire.FramingLengthPrefixed, k.address())
	cfg.ReceiptTimeout = 500 * time.Millisecond
	started(t, cfg)
	put(t, watched, "first", "first")
	waitFor(t, func() bool { return p.has("first") && len(owed(cfg)) == 0 })
	k.silent.Store(true)
	put(t, watched, "second", "second")
	waitFor(t, func() bool { return strings.Contains(cfg.Messages.(*testLog).String(), "no receipt within") })
	if p.has("second") || len(owed(cfg)) != 1 {
		t.Errorf("owed %v", owed(cfg))
	}
	k.silent.Store(false)
	waitFor(t, func() bool { return p.has("second") && len(owed(cfg)) == 0 })
}

// TestHeartbeats: an idle sender reports itself; with a queue, what waits in it.
func TestHeartbeats(t *testing.T) {
	var b beats
	p := newPeer(t, beating(-time.Hour, b.heard))
	k := newLink(t, p.address(), func(*link) {})
	cfg, watched := serveConfig(t, wire.FramingLengthPrefixed, k.address())
	cfg.Queue.Heartbeat, cfg.Queue.DailyBudget = 20*time.Millisecond, 100_000
	started(t, cfg)
	waitFor(t, func() bool { h := b.last(); return h.ClockOffset != nil && h.QueueObjects == 0 })
	if off := time.Duration(*b.last().ClockOffset); (off + time.Hour).Abs() > time.Duration(*b.last().RoundTrip) {
		t.Errorf("offset %v", off)
	}
	for _, name := range []string{"fits", "does not"} {
		put(t, watched, name, strings.Repeat(name[:1], 60_000))
	}
	waitFor(t, func() bool {
		h := b.last()
		return h.QueueObjects == 1 && h.QueueBytes == 60_000 && h.Oldest != nil && h.Sent == 1 || midnightPassed(cfg)
	})
}

// TestOldGateway: one that knows no heartbeats costs a connection now and then, and
// nothing is lost by that.
func TestOldGateway(t *testing.T) {
	old := func(p *peer, c *net.TCPConn) {
		for {
			var prefix [wire.PrefixSize]byte
			if _, err := io.ReadFull(c, prefix[:]); err != nil {
				return
			}
			length, control := wire.ParsePrefix(prefix)
			if control {
				p.say(c, wire.Receipt{Refused: wire.CauseObjectTooLarge}.Line())
				return
			}
			digest := sha256.New()
			if _, err := io.CopyN(digest, c, length); err != nil {
				return
			}
			r := wire.Receipt{Digest: wire.Digest(digest.Sum(nil)), Bytes: length}
			p.mu.Lock()
			p.objects[r.Digest]++
			p.mu.Unlock()
			_, _ = io.WriteString(c, r.Line())
		}
	}
	p := newPeer(t, old)
	cfg, watched := serveConfig(t, wire.FramingLengthPrefixed, p.address())
	cfg.Queue.Heartbeat = 10 * time.Millisecond
	started(t, cfg)
	var texts []string
	for i := range 100 {
		texts = append(texts, fmt.Sprint("frame ", i))
		put(t, watched, fmt.Sprint("frame-", i), texts[i])
	}
	waitFor(t, func() bool { return p.has(texts...) && len(owed(cfg)) == 0 })
	if said := cfg.Messages.(*testLog).String(); !strings.Contains(said, "takes no heartbeats") || strings.Contains(said, "set aside") {
		t.Errorf("it says\n%s", said)
	}
}

// TestClock: of the last samples the best counts, and a clock that is set makes
// older ones void.
func TestClock(t *testing.T) {
	var c clock
	if _, _, ok := c.estimate(); ok {
		t.Error("measured nothing")
	}
	want := func(offset, roundTrip time.Duration) {
		t.Helper()
		if o, r, ok := c.estimate(); !ok || o != offset || r != roundTrip {
			t.Errorf("%v in %v, want %v in %v", o, r, offset, roundTrip)
		}
	}
	c.add(3*time.Second, 4*time.Second)
	want(3*time.Second, 4*time.Second)
	c.add(2*time.Second, 100*time.Millisecond)
	want(2*time.Second, 100*time.Millisecond)
	c.add(4*time.Second, 5*time.Second)
	want(2*time.Second, 100*time.Millisecond)
	c.add(-time.Minute, 2*time.Second) // a clock was set
	want(-time.Minute, 2*time.Second)
	for range clockSamples {
		c.add(-time.Minute, 3*time.Second)
	}
	want(-time.Minute, 3*time.Second) // the best is too old
}
