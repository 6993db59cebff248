// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stamp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/substorm/substorm/internal/testenv"
)

// network is a network namespace of its own: what it runs sees nothing else.
type network struct {
	work chan func()
	tid  int
}

// newNetwork skips the test without the privilege for that.
func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{work: make(chan func())}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		failed <- unix.Unshare(unix.CLONE_NEWNET)
		n.tid = unix.Gettid()
		for f := range n.work {
			f()
		}
	}()
	if err := <-failed; err != nil {
		close(n.work)
		t.Skipf("this needs the privilege to make network namespaces: %v", err)
	}
	t.Cleanup(func() { close(n.work) })
	n.do(func() {})
	return n
}

func (n *network) do(f func()) {
	done := make(chan struct{})
	n.work <- func() { defer close(done); f() }
	<-done
}

// run runs programs in the namespace, one for each line.
func (n *network) run(lines string) (err error) {
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		n.do(func() {
			if out, failed := exec.Command(words[0], words[1:]...).CombinedOutput(); failed != nil {
				err = fmt.Errorf("%s: %w: %s", strings.TrimSpace(line), failed, out)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Two machines in namespaces of their own, and a kernel that loses packets on their way
// in: the loss is seen, and which way it is. If the kernel has netem, it also delays, and
// that is seen.
func TestLossyNetwork(t *testing.T) {
	for _, out := range []bool{true, false} {
		t.Run(map[bool]string{true: "out", false: "back"}[out], func(t *testing.T) {
			field, site := newNetwork(t), newNetwork(t)
			lossy, device := site, "site0"
			if !out {
				lossy, device = field, "field0"
			}
			for _, step := range []struct {
				n    *network
				line string
			}{
				{field, fmt.Sprintf("ip link add field0 type veth peer name site0 netns /proc/%d/ns/net", site.tid)},
				{field, "ip addr add 10.9.0.1/24 dev field0"},
				{site, "ip addr add 10.9.0.2/24 dev site0"},
				{field, "ip link set field0 up"},
				{site, "ip link set site0 up"},
				{lossy, "iptables -A INPUT -i " + device + " -p udp -m statistic --mode random --probability 0.1 -j DROP"},
			} {
				if err := step.n.run(step.line); err != nil {
					t.Skipf("this machine makes no such network: %v", err)
				}
			}
			delayed := field.run("tc qdisc add dev field0 root netem delay 20ms")
			if delayed != nil {
				t.Logf("without a delay: %v", delayed)
			}
			got := crossing(t, field, site)
			right, wrong := got.LostOut, got.LostBack
			if !out {
				right, wrong = wrong, right
			}
			// 10 % of 600 are 60; 5 standard deviations of 7.3 to either side.
			if share := float64(right) / float64(got.Sent); share < 0.04 || share > 0.16 {
				t.Errorf("of 10 percent loss it sees %+v", got)
			}
			if wrong > got.Sent/100 {
				t.Errorf("loss the other way: %+v", got)
			}
			if delayed == nil && got.Min < 20*time.Millisecond {
				t.Errorf("of 20 ms delay it sees %+v", got)
			}
			t.Logf("%+v", got)
		})
	}
}

// crossing sends 600 packets from one network to another, faster than a real
// session.
func crossing(t *testing.T, from, to *network) Report {
	t.Helper()
	var conn *socket
	var err error
	to.do(func() { conn, err = listen("10.9.0.2:8862") })
	if err != nil {
		t.Fatal(err)
	}
	r := newReflector(conn, ReflectorConfig{Knows: knowsAll, Logger: slog.New(slog.DiscardHandler)})
	r.each = rate.Inf
	s := NewSession(SessionConfig{Address: "10.9.0.2:8862"})
	s.cfg.Interval = 3 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	running.Go(func() { from.do(func() { s.Run(ctx) }) })
	testenv.Await(t, "more than 600 packets are sent", func() bool { return s.Report(time.Now().Add(Patience)).Sent > 600 })
	cancel()
	running.Wait()
	return s.Report(time.Now().Add(Patience))
}

// relay passes packets between a session and a reflector, but for every third one
// out and every fourth one back, and takes its time.
func relay(t *testing.T, to netip.AddrPort, delay time.Duration) netip.AddrPort {
	t.Helper()
	near, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	far, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	var back netip.AddrPort
	var mu sync.Mutex
	var running sync.WaitGroup
	running.Go(func() {
		b := make([]byte, 2048)
		for i := 1; ; i++ {
			n, from, err := near.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			mu.Lock()
			back = from
			mu.Unlock()
			time.Sleep(delay) // the way out
			if i%3 != 0 {
				_, _ = far.Write(b[:n])
			}
		}
	})
	running.Go(func() {
		b := make([]byte, 2048)
		for i := 1; ; i++ {
			n, err := far.Read(b)
			if err != nil {
				return
			}
			mu.Lock()
			to := back
			mu.Unlock()
			if i%4 != 0 {
				_, _ = near.WriteToUDPAddrPort(b[:n], to)
			}
		}
	})
	t.Cleanup(func() { near.Close(); far.Close(); running.Wait() })
	return netip.MustParseAddrPort(near.LocalAddr().String())
}

// Over a link that takes 20 ms out and none back, and of twelve packets loses four
// out and two back, delay and losses are seen as they are.
func TestLossyLink(t *testing.T) {
	r := reflecting(t, "127.0.0.1:0", ReflectorConfig{Knows: knowsAll}, func(r *Reflector) { r.each = rate.Inf })
	s := NewSession(SessionConfig{Address: relay(t, r.Address(), 20*time.Millisecond).String()})
	s.cfg.Interval = 30 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	// It is not known where the packets at the end were lost; 36 answers are of 72 packets.
	testenv.Await(t, "36 packets are answered", func() bool { return s.Report(time.Now()).Answered >= 36 })
	cancel()
	running.Wait()
	got := s.Report(time.Now().Add(Patience))
	if got.Min < 20*time.Millisecond {
		t.Errorf("of 20 ms delay it sees %+v", got)
	}
	if out, back := 3*got.LostOut-got.Sent, 6*got.LostBack-got.Sent; max(out, -out) > 9 || max(back, -back) > 18 {
		t.Errorf("of a third lost out and a sixth back it sees %+v", got)
	}
}
