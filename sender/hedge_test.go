// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sender

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// swallow reads all input and answers nothing, until the sender closes the connection.
func swallow(_ *peer, c *net.TCPConn) { _, _ = io.Copy(io.Discard, c); _, _ = c.Read(make([]byte, 1)) }

func manyFiles(t *testing.T, n, size int) (dir string, digests map[string]bool) {
	t.Helper()
	dir, digests = t.TempDir(), map[string]bool{}
	for i := range n {
		path := filepath.Join(dir, fmt.Sprintf("frame-%03d", i))
		data := make([]byte, size)
		copy(data, path)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		digests[fileDigest(t, path)] = true
	}
	return dir, digests
}

// TestSilentServer: servers that take everything and never answer, or take
// nothing, keep no object from the one that works. No receipt may take an hour
// here: without hedging this test would not end.
func TestSilentServer(t *testing.T) {
	works := map[string]func(*peer, *net.TCPConn){wire.FramingUntilClose: good, wire.FramingLengthPrefixed: goodPipe(1)}
	for _, framing := range []string{wire.FramingUntilClose, wire.FramingLengthPrefixed} {
		for name, c := range map[string]struct {
			behave func(*peer, *net.TCPConn)
			n      int
			size   int
		}{
			"takes all":       {swallow, 40, 10_000},
			"takes nothing":   {stall, 12, 100},
			"takes no more":   {stall, 3, 16 << 20},
			"never connected": {nil, 12, 100},
		} {
			t.Run(framing+" "+name, func(t *testing.T) {
				t.Parallel()
				working := newPeer(t, works[framing])
				dir, want := manyFiles(t, c.n, c.size)
				cfg := config(t, dir)
				cfg.Addresses = []string{working.address()}
				if c.behave != nil {
					cfg.Addresses = append(cfg.Addresses, newPeer(t, c.behave).address())
				} else {
					cfg.Addresses = append(cfg.Addresses, hole(t))
				}
				cfg.Parallel, cfg.Framing, cfg.HedgeAfter, cfg.ReceiptTimeout, cfg.ConnectTimeout = 4, framing, 100*time.Millisecond, time.Hour, time.Hour
				if err := Run(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
				for _, r := range readReport(t, cfg) {
					if !want[r.SHA256] || r.Outcome != Received || r.Server != working.address() {
						t.Errorf("report: %+v", r)
					}
					delete(want, r.SHA256)
				}
				if len(want) > 0 {
					t.Errorf("%d objects are not in the report", len(want))
				}
			})
		}
	}
}

// TestSilentServerAnswersAgain: one that fell silent is asked again, with one
// object at a time, and used again once it answers.
func TestSilentServerAnswersAgain(t *testing.T) {
	working, mute := newPeer(t, goodPipe(1)), newPeer(t, goodPipe(1))
	k := newLink(t, mute.address(), func(k *link) { k.silent.Store(true) })
	cfg, watched := serveConfig(t, wire.FramingLengthPrefixed, working.address(), k.address())
	cfg.HedgeAfter, cfg.ReceiptTimeout = 50*time.Millisecond, time.Hour
	started(t, cfg)
	n, texts := 0, []string(nil)
	more := func() {
		n++
		texts = append(texts, fmt.Sprint("frame ", n))
		put(t, watched, fmt.Sprint("frame-", n), texts[len(texts)-1])
	}
	for range 20 {
		more()
	}
	waitFor(t, func() bool { return working.has(texts...) && len(owed(cfg)) == 0 })
	k.silent.Store(false)
	waitFor(t, func() bool { more(); all, _ := mute.arrived(); return all >= 5 })
	waitFor(t, func() bool { return len(owed(cfg)) == 0 })
}

// TestThinLinkIsNotHedged: where all servers are behind a link that is slow, and
// the receipts are late for that, objects go up once.
func TestThinLinkIsNotHedged(t *testing.T) {
	for _, framing := range []string{wire.FramingUntilClose, wire.FramingLengthPrefixed} {
		t.Run(framing, func(t *testing.T) {
			t.Parallel()
			behave := map[string]func(*peer, *net.TCPConn){wire.FramingUntilClose: good, wire.FramingLengthPrefixed: goodPipe(1)}[framing]
			p := newPeer(t, behave)
			thin := func(k *link) { k.rate, k.delay = 60_000, 5*time.Millisecond }
			one, two := newLink(t, p.address(), thin), newLink(t, p.address(), thin)
			const n, size = 8, 30_000
			dir, want := manyFiles(t, n, size)
			cfg := config(t, dir)
			cfg.Addresses, cfg.Parallel, cfg.Framing, cfg.HedgeAfter = []string{one.address(), two.address()}, 4, framing, 400*time.Millisecond
			cfg.ReceiptTimeout = time.Hour
			if err := Run(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			if all, different := p.arrived(); different != len(want) {
				t.Errorf("%d objects arrived, %d different ones of %d", all, different, len(want))
			}
			up := one.up.Load() + two.up.Load()
			if t.Logf("%d bytes went up for %d", up, n*size); up > n*size*5/4 {
				t.Error("objects went up twice")
			}
		})
	}
}

// TestHedge: what is usual of an address counts, and of all where it gave no receipt yet.
func TestHedge(t *testing.T) {
	h := hedge{after: time.Second}
	want := func(address string, limit time.Duration, known bool) {
		t.Helper()
		if l, k := h.limit(address); l != limit || k != known {
			t.Errorf("%s: %v, %t; want %v, %t", address, l, k, limit, known)
		}
	}
	want("a", time.Second, false)
	receipt := func(address string, gap time.Duration) {
		p := newPulse()
		p.setConn(&vitals{gap: gap})
		h.received(address, p)
	}
	receipt("a", 2*time.Second)
	want("a", 6*time.Second, true)
	want("b", 6*time.Second, true)
	receipt("b", 10*time.Millisecond)
	want("b", time.Second, true)
	for range usualReceipts {
		receipt("a", 20*time.Millisecond)
	}
	want("a", time.Second, true)
}
