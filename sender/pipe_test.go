// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sender

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// receivePrefixed reads the next object of a connection. It returns false where
// the sender ended it between objects.
func (p *peer) receivePrefixed(c *net.TCPConn) (wire.Receipt, bool) {
	var prefix [wire.PrefixSize]byte
	digest := sha256.New()
	_, err := io.ReadFull(c, prefix[:])
	ended := errors.Is(err, io.EOF)
	var n int64
	if err == nil {
		n, err = io.CopyN(digest, c, int64(binary.BigEndian.Uint32(prefix[:])))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case ended:
		return wire.Receipt{}, false
	case errors.Is(err, syscall.ECONNRESET):
		p.resets++
		return wire.Receipt{}, false
	case err != nil:
		p.t.Errorf("the sender ends amid an object: %v", err)
		return wire.Receipt{}, false
	}
	r := wire.Receipt{Digest: wire.Digest(digest.Sum(nil)), Bytes: n}
	p.objects[r.Digest]++
	return r, true
}

// goodPipe gives each object its receipt, in order, depth objects late: it waits
// for senders that do not wait for it.
func goodPipe(depth int) func(*peer, *net.TCPConn) {
	return func(p *peer, c *net.TCPConn) {
		var due []wire.Receipt
		for {
			r, ok := p.receivePrefixed(c)
			if !ok {
				return
			}
			for due = append(due, r); len(due) >= depth; due = due[1:] {
				_, _ = io.WriteString(c, due[0].Line())
			}
		}
	}
}

// afterSome behaves well for so many objects, and then otherwise.
func afterSome(n int, then func(*peer, *net.TCPConn)) func(*peer, *net.TCPConn) {
	return func(p *peer, c *net.TCPConn) {
		for range n {
			r, ok := p.receivePrefixed(c)
			if !ok {
				return
			}
			_, _ = io.WriteString(c, r.Line())
		}
		then(p, c)
	}
}

func folder(t *testing.T, n, size int) (dir string, want map[string]bool) {
	t.Helper()
	dir, want = t.TempDir(), map[string]bool{}
	for i := range n {
		path := filepath.Join(dir, fmt.Sprintf("frame-%03d", i))
		if err := os.WriteFile(path, []byte(fmt.Sprintf("frame %d", i)+strings.Repeat("x", i*size)), 0o600); err != nil {
			t.Fatal(err)
		}
		want[fileDigest(t, path)] = true
	}
	return dir, want
}

func pipeConfig(t *testing.T, paths ...string) Config {
	cfg := config(t, paths...)
	cfg.Framing, cfg.GiveUpAfter = wire.FramingLengthPrefixed, time.Hour
	return cfg
}

// TestPipe: one connection, on which objects do not wait for earlier receipts.
func TestPipe(t *testing.T) {
	const depth = 8
	p := newPeer(t, goodPipe(1))
	deep := newPeer(t, goodPipe(depth))
	dir, want := folder(t, 120, 1000)
	cfg := pipeConfig(t, dir)
	cfg.Addresses, cfg.Parallel = []string{p.address()}, 16
	if err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for _, r := range readReport(t, cfg) {
		if r.Outcome != Received || !want[r.SHA256] || r.Tries != 1 || r.ReceiptedAt == nil {
			t.Errorf("report: %+v", r)
		}
		delete(want, r.SHA256)
	}
	if all, different := p.arrived(); len(want) > 0 || all != 120 || different != 120 || p.connections() != 1 {
		t.Errorf("%d objects over %d connections, %d different ones, %d not in the report", all, p.connections(), different, len(want))
	}
	waitFor(t, func() bool { return p.served() == 1 })
	if p.resets != 0 {
		t.Error("the connection was reset in the end")
	}

	// A server that answers only once so many are on their way: the last are
	// never answered.
	dir, _ = folder(t, 40, 10)
	cfg = pipeConfig(t, dir)
	cfg.Addresses, cfg.Parallel, cfg.ReceiptTimeout, cfg.GiveUpAfter = []string{deep.address()}, depth, 2*time.Second, 0
	err := Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d of 40 objects were not received", depth-1)) || !strings.Contains(err.Error(), "LengthPrefixed?") {
		t.Errorf("got %v", err)
	}
}

// TestPipeAnswers: what each kind of answer means for the object that it is for.
func TestPipeAnswers(t *testing.T) {
	const big = 16 << 20
	one := func(f func(*peer, *net.TCPConn, wire.Receipt)) func(*peer, *net.TCPConn) {
		return func(p *peer, c *net.TCPConn) {
			if r, ok := p.receivePrefixed(c); ok {
				f(p, c, r)
			}
		}
	}
	say := func(text string) func(*peer, *net.TCPConn) {
		return one(func(p *peer, c *net.TCPConn, _ wire.Receipt) { p.say(c, text) })
	}
	for name, c := range map[string]struct {
		behave  func(*peer, *net.TCPConn)
		size    int
		outcome Outcome
		cause   wire.Cause
		says    string
		timeout time.Duration
	}{
		"a receipt":           {behave: goodPipe(1), outcome: Received},
		"of a large object":   {behave: goodPipe(1), size: big, outcome: Received},
		"bare close":          {behave: say(""), outcome: Unknown, says: "closed without a receipt"},
		"reset after it":      {behave: one(func(*peer, *net.TCPConn, wire.Receipt) {}), outcome: Unknown, says: "reset"},
		"reset amid it":       {behave: resetEarly, size: big, outcome: Unsent},
		"another digest":      {behave: one(func(p *peer, c *net.TCPConn, r wire.Receipt) { r.Digest[0] ^= 1; p.say(c, r.Line()) }), outcome: Unknown, says: "other bytes"},
		"another size":        {behave: one(func(p *peer, c *net.TCPConn, r wire.Receipt) { r.Bytes++; p.say(c, r.Line()) }), outcome: Unknown, says: "other bytes"},
		"no LF":               {behave: one(func(p *peer, c *net.TCPConn, r wire.Receipt) { p.say(c, strings.TrimSpace(r.Line())) }), outcome: Unknown, says: "closed without a receipt"},
		"an HTTP server":      {behave: say("HTTP/1.1 400 Bad Request\r\n\r\n"), outcome: Unknown, says: "is it a gateway?"},
		"a line without end":  {behave: say(strings.Repeat("x", 5000)), outcome: Unknown, says: "is it a gateway?"},
		"silence":             {behave: one(func(p *peer, _ *net.TCPConn, _ wire.Receipt) { <-p.t.Context().Done() }), outcome: Unknown, says: "no receipt within", timeout: 300 * time.Millisecond},
		"takes no byte":       {behave: stall, size: big, outcome: Unsent, timeout: 300 * time.Millisecond},
		"refused for good":    {behave: say("refused UnknownSource\n"), outcome: Refused, cause: wire.CauseUnknownSource, says: "spec.listeners"},
		"refused amid it":     {behave: refuseEarly(wire.CauseObjectTooLarge), size: big, outcome: Refused, cause: wire.CauseObjectTooLarge, says: "maxObjectSize"},
		"refused and reset":   {behave: refuseAndReset(wire.CauseObjectTooLarge), size: big, outcome: Refused, cause: wire.CauseObjectTooLarge, says: "maxObjectSize"},
		"receipt ahead of it": {behave: receiptTooEarly, size: big, outcome: Unsent, says: "before the object was sent"},
		"refused unasked": {behave: func(p *peer, c *net.TCPConn) {
			_, _ = io.WriteString(c, "refused Retired\n")
			_ = c.CloseWrite()
			p.drain(c)
		}, outcome: Refused, cause: wire.CauseRetired, says: "retired"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, c.behave)
			path := randomFile(t, max(c.size, 1000))
			cfg := pipeConfig(t, path)
			cfg.Addresses, cfg.GiveUpAfter = []string{p.address()}, 0
			if c.timeout > 0 {
				cfg.ReceiptTimeout = c.timeout
			}
			err := Run(t.Context(), cfg)
			results := readReport(t, cfg)
			if len(results) != 1 {
				t.Fatalf("report: %+v", results)
			}
			r := results[0]
			if r.Outcome != c.outcome || r.Cause != c.cause || r.Tries != 1 || (err == nil) != (c.outcome == Received) {
				t.Errorf("%v, report: %+v", err, r)
			}
			if err != nil && (!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path)) {
				t.Errorf("the error names not both the file and %q: %v", c.says, err)
			}
			if c.outcome == Received && (r.SHA256 != fileDigest(t, path) || r.Bytes != int64(max(c.size, 1000))) {
				t.Errorf("report: %+v", r)
			}
		})
	}
}

// TestPipeIsOver: an object for a connection whose server has refused already is
// refused for that, and counts as not sent.
func TestPipeIsOver(t *testing.T) {
	p := newPeer(t, func(p *peer, c *net.TCPConn) { p.say(c, "refused Retired\n") })
	all := newPipes(t.Context(), &sender{receiptTimeout: 20 * time.Second, sent: func(int64) {}, lost: func(int64) {}})
	defer all.close()
	c, err := all.open(t.Context(), p.address(), 0)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return !c.usable() })
	v := c.send(t.Context(), item{}, strings.NewReader("an object"), 9, newPulse())
	if v.refused != wire.CauseRetired || v.whole || v.receipted || v.taken != 0 {
		t.Errorf("verdict %+v", v)
	}
}

// TestPipeBreaks: of a connection that breaks, what has a receipt is received,
// and the rest is sent again over a new one.
func TestPipeBreaks(t *testing.T) {
	swapped := func(p *peer, c *net.TCPConn) {
		first, _ := p.receivePrefixed(c)
		second, _ := p.receivePrefixed(c)
		p.say(c, second.Line()+first.Line())
	}
	for name, then := range map[string]func(*peer, *net.TCPConn){
		"bare close": func(_ *peer, c *net.TCPConn) { _ = c.SetLinger(-1) },
		"reset":      func(p *peer, c *net.TCPConn) { p.receivePrefixed(c) },
		"swapped":    swapped,
		"draining":   func(p *peer, c *net.TCPConn) { p.say(c, ""); _ = c.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, afterSome(7, then), afterSome(0, then), goodPipe(1))
			dir, want := folder(t, 60, 500)
			cfg := pipeConfig(t, dir)
			cfg.Addresses, cfg.Parallel = []string{p.address()}, 5
			if err := Run(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			tries := 0
			for _, r := range readReport(t, cfg) {
				if r.Outcome != Received || !want[r.SHA256] {
					t.Errorf("report: %+v", r)
				}
				tries += r.Tries
				delete(want, r.SHA256)
			}
			if len(want) > 0 || p.connections() < 3 || tries <= 60 {
				t.Errorf("%d objects are not in the report; %d connections, %d tries", len(want), p.connections(), tries)
			}
		})
	}
}

// TestPipeSpreads: over all servers that work, a connection each.
func TestPipeSpreads(t *testing.T) {
	a, b, bare := newPeer(t, goodPipe(1)), newPeer(t, goodPipe(1)), newPeer(t, func(_ *peer, c *net.TCPConn) { _ = c.SetLinger(-1) })
	dir, _ := folder(t, 60, 100)
	cfg := pipeConfig(t, dir)
	cfg.Addresses, cfg.Parallel = []string{a.address(), deadAddress(t), bare.address(), b.address()}, 4
	if err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	all, _ := a.arrived()
	more, _ := b.arrived()
	if all+more != 60 || all == 0 || more == 0 || a.connections() != 1 || b.connections() != 1 {
		t.Errorf("%d and %d objects over %d and %d connections", all, more, a.connections(), b.connections())
	}
}

// TestPipeLocal: what fails on our side ends no other object's try for good, and
// nothing arrives of it.
func TestPipeLocal(t *testing.T) {
	p := newPeer(t, goodPipe(1))
	dir, _ := folder(t, 3, 10)
	for name, size := range map[string]int64{"empty": 0, "huge": 5 << 30} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
	cfg := pipeConfig(t, dir)
	cfg.Addresses = []string{p.address()}
	err := Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "2 of 5") || !strings.Contains(err.Error(), "until-close") || !strings.Contains(err.Error(), errEmpty.Error()) {
		t.Errorf("got %v", err)
	}
	if all, _ := p.arrived(); all != 3 {
		t.Errorf("%d objects arrived", all)
	}
	broken := errors.New("input/output error")
	s := &sender{receiptTimeout: 20 * time.Second, sent: func(int64) {}, lost: func(int64) {}}
	for name, tail := range map[string]io.Reader{"unreadable": failing{broken}, "shorter than it was": strings.NewReader("")} {
		pipes := newPipes(t.Context(), s)
		v := pipes.attempt(t.Context(), p.address(), item{name: name, size: 2 << 20, open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), tail)), nil
		}}, newPulse())
		if !v.local || v.err == nil || v.whole {
			t.Errorf("%s: verdict %+v", name, v)
		}
		pipes.close()
	}
	waitFor(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.resets == 2 })
}

// TestPipeInterrupt: Ctrl-C resets what is on its way.
func TestPipeInterrupt(t *testing.T) {
	started := make(chan struct{})
	p := newPeer(t, afterSome(1, func(p *peer, c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, wire.PrefixSize))
		close(started)
		p.receive(c)
	}))
	first, second := randomFile(t, 100), randomFile(t, 100)
	if err := os.Truncate(second, 2<<30-1); err != nil {
		t.Fatal(err)
	}
	cfg := pipeConfig(t, first, second)
	cfg.Addresses = []string{p.address()}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		<-started
		for range testenv.Attempts() {
			if len(readReport(t, cfg)) == 1 {
				return
			}
		}
		t.Error("the first object is not reported")
	}()
	if err := Run(ctx, cfg); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), second) {
		t.Errorf("got %v", err)
	}
	waitFor(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.resets == 1 })
	if all, _ := p.arrived(); all != 1 {
		t.Errorf("%d objects arrived as wholes", all)
	}
}

func TestParseFraming(t *testing.T) {
	for name, want := range map[string]string{
		"until-close": wire.FramingUntilClose, "UntilClose": wire.FramingUntilClose,
		"length-prefixed": wire.FramingLengthPrefixed, "LengthPrefixed": wire.FramingLengthPrefixed,
	} {
		if got, err := parseFraming(name); err != nil || got != want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if got, err := parseFraming("lines"); err == nil {
		t.Errorf("lines: %s", got)
	}
}
