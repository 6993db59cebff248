// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sender

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender/queue"
)

func asked(channel, state string, millis int64) wire.ChannelSampling {
	return wire.ChannelSampling{Channel: channel, State: state, IntervalMillis: millis}
}

func TestSamplingChanges(t *testing.T) {
	on, off := wire.SamplingObserving, wire.SamplingPaused
	type list []wire.ChannelSampling
	for _, c := range []struct {
		name          string
		was, is, want list
	}{
		{"the first command", nil, list{asked("", on, 0), asked("x", off, 5)}, list{asked("", on, 0), asked("x", off, 5)}},
		{"the same again", list{asked("", on, 1)}, list{asked("", on, 1)}, nil},
		{"for another consumer", list{asked("", on, 1)}, list{{State: on, IntervalMillis: 1, By: "browser"}}, nil},
		{"one channel changes", list{asked("", on, 1), asked("x", on, 2)}, list{asked("", on, 1), asked("x", on, 3)}, list{asked("x", on, 3)}},
		{"a channel goes its own way", list{asked("", on, 1)}, list{asked("", on, 1), asked("x", on, 3)}, list{asked("x", on, 3)}},
		{"a channel goes with the others again", list{asked("", on, 1), asked("x", on, 3)}, list{asked("", on, 1)}, list{asked("x", on, 1)}},
		{"a channel does as the others by itself", list{asked("", on, 1)}, list{asked("", on, 1), asked("x", on, 1)}, nil},
	} {
		if diff := cmp.Diff(c.want, list(changes(c.was, c.is))); diff != "" {
			t.Errorf("%s: -want +got\n%s", c.name, diff)
		}
	}
}

func TestMeter(t *testing.T) {
	var m meter
	begin := time.UnixMilli(1_000_000)
	at := func(seconds float64) time.Time {
		return begin.Add(time.Duration(seconds * float64(time.Second)))
	}
	if d, ok := m.interval(at(0)); ok {
		t.Errorf("of nothing: %v", d)
	}
	m.add(at(0))
	if d, ok := m.interval(at(9)); ok {
		t.Errorf("of one observation: %v", d)
	}
	want := func(now float64, interval time.Duration) {
		t.Helper()
		if d, ok := m.interval(at(now)); !ok || d != interval {
			t.Errorf("%v, %v; want %v", d, ok, interval)
		}
	}
	for i := range 10 {
		m.add(at(2 * float64(i+1)))
	}
	m.add(at(5)) // backfill
	want(20, 2*time.Second)
	want(26, 2*time.Second)
	want(27, 7*time.Second) // it has stopped, or is far slower
	for i := range meterTimes {
		m.add(at(100 + 0.5*float64(i)))
	}
	want(108, 500*time.Millisecond)
}

// commanding is a gateway that answers heartbeats, and sends commands to who takes
// them: the one that stands, and others as they come.
type commanding struct {
	beats

	mu    sync.Mutex
	line  string
	conns map[*net.TCPConn]bool
}

func (g *commanding) behave(p *peer, c *net.TCPConn) {
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.conns, c)
	}()
	beating(0, func(h wire.Heartbeat) {
		g.heard(h)
		g.mu.Lock()
		defer g.mu.Unlock()
		if slices.Contains(h.Commands, wire.CommandSampling) && !g.conns[c] {
			g.conns[c] = true
			_, _ = io.WriteString(c, g.line)
		}
	})(p, c)
}

func (g *commanding) command(t *testing.T, channels ...wire.ChannelSampling) {
	t.Helper()
	line, err := wire.Sampling{Channels: channels}.Line()
	if err != nil {
		t.Fatal(err)
	}
	g.write(line)
}

func (g *commanding) write(line string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.line = line
	for c := range g.conns {
		_, _ = io.WriteString(c, line)
	}
}

// cut resets all connections.
func (g *commanding) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		_ = c.Close()
	}
}

// commanded is a sender that writes what it is asked to a file.
func commanded(t *testing.T, g *commanding) (cfg Config, watched string, did func() string) {
	t.Helper()
	g.conns = map[*net.TCPConn]bool{}
	g.command(t, asked("", wire.SamplingObserving, 0))
	p := newPeer(t, g.behave)
	cfg, watched = serveConfig(t, wire.FramingLengthPrefixed, p.address())
	file := filepath.Join(t.TempDir(), "did")
	cfg.Queue.Heartbeat = time.Hour
	cfg.Queue.SampleCommand = `echo "$SUBSTORM_SAMPLING_CHANNEL $SUBSTORM_SAMPLING_STATE $SUBSTORM_SAMPLING_INTERVAL" >> ` + file
	return cfg, watched, func() string {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(text)
	}
}

// The user's command runs once for each channel that changes, also while nothing is sent; the
// heartbeat that reports it is sent at once.
func TestSampleCommand(t *testing.T) {
	g := &commanding{}
	cfg, watched, did := commanded(t, g)
	started(t, cfg)
	want := " Observing \n"
	obeyed := func(channels ...wire.ChannelSampling) {
		t.Helper()
		waitFor(t, func() bool {
			h := g.last()
			return h.Sampling != nil && slices.Equal(h.Sampling.Obeys, channels) && h.Sampling.Problem == ""
		})
		if got := did(); got != want {
			t.Errorf("it did\n%s, want\n%s", got, want)
		}
	}
	obeyed(asked("", wire.SamplingObserving, 0))
	for i := range 10 {
		put(t, watched, fmt.Sprint("frame-", i), fmt.Sprint("frame ", i))
	}
	waitFor(t, func() bool { return len(owed(cfg)) == 0 })
	g.command(t, asked("", wire.SamplingObserving, 1500), asked("dark", wire.SamplingPaused, 0))
	want += " Observing 1.5\ndark Paused \n"
	obeyed(asked("", wire.SamplingObserving, 1500), asked("dark", wire.SamplingPaused, 0))
	g.write("command focus 12\n") // not ours
	g.command(t, asked("", wire.SamplingObserving, 1500))
	want += "dark Observing 1.5\n"
	obeyed(asked("", wire.SamplingObserving, 1500))

	// A command that is given while the connection is away is heard once it is back.
	g.mu.Lock()
	g.line, _ = wire.Sampling{Channels: []wire.ChannelSampling{asked("", wire.SamplingPaused, 0)}}.Line()
	g.mu.Unlock()
	g.cut()
	want += " Paused \n"
	obeyed(asked("", wire.SamplingPaused, 0))
	put(t, watched, "late", "late")
	waitFor(t, func() bool { return len(owed(cfg)) == 0 }) // data is sent whatever is asked
}

// A command that fails is tried again, and the failure is reported to the Site.
func TestSampleCommandFails(t *testing.T) {
	g := &commanding{}
	cfg, _, did := commanded(t, g)
	ready := filepath.Join(t.TempDir(), "ready")
	cfg.Queue.SampleCommand = "echo no serial line; test -e " + ready + " && " + cfg.Queue.SampleCommand
	started(t, cfg)
	waitFor(t, func() bool {
		h := g.last()
		return h.Sampling != nil && h.Sampling.Obeys == nil && h.Sampling.Problem == "--sample-command: exit status 1"
	})
	if said := cfg.Messages.(*testLog).String(); !strings.Contains(said, "no serial line") {
		t.Errorf("it says\n%s", said)
	}
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		h := g.last()
		return len(h.Sampling.Obeys) == 1 && h.Sampling.Problem == ""
	})
	if did() != " Observing \n" {
		t.Errorf("it did %q", did())
	}
}

// A command that is replaced before its turn is never run, and what comes between
// two receipts disturbs neither.
func TestSampleCommandReplaced(t *testing.T) {
	var ran []wire.ChannelSampling
	begun, goOn := make(chan struct{}, 10), make(chan struct{})
	s := newSampler(func(ctx context.Context, c wire.ChannelSampling) error {
		begun <- struct{}{}
		<-goOn
		ran = append(ran, c)
		return nil
	}, func() {}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var obeying sync.WaitGroup
	obeying.Go(func() { s.obey(ctx) })
	tell := func(millis int64) {
		line, err := wire.Sampling{Channels: []wire.ChannelSampling{asked("", wire.SamplingObserving, millis)}}.Line()
		if err != nil {
			t.Fatal(err)
		}
		s.command(line)
	}
	tell(1)
	<-begun
	for millis := range int64(50) {
		tell(2 + millis)
	}
	close(goOn)
	waitFor(t, func() bool {
		r := s.report(time.Now())
		return len(r.Obeys) == 1 && r.Obeys[0].IntervalMillis == 51
	})
	cancel()
	obeying.Wait()
	if diff := cmp.Diff([]wire.ChannelSampling{asked("", wire.SamplingObserving, 1), asked("", wire.SamplingObserving, 51)}, ran); diff != "" {
		t.Errorf("ran -want +got\n%s", diff)
	}
}

// Heartbeats say what rate is achieved, since the last change.
func TestAchieved(t *testing.T) {
	s := newSampler(func(context.Context, wire.ChannelSampling) error { return nil }, func() {}, slog.New(slog.DiscardHandler))
	now := time.Now()
	for i := range 5 {
		s.observed([]queue.Entry{{Millis: now.Add(time.Duration(i) * time.Second).UnixMilli()}})
	}
	want := []wire.AchievedSampling{{Interval: wire.Span(time.Second)}}
	if diff := cmp.Diff(want, s.report(now.Add(4*time.Second)).Achieved); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	line, err := wire.Sampling{Channels: []wire.ChannelSampling{asked("", wire.SamplingObserving, 100)}}.Line()
	if err != nil {
		t.Fatal(err)
	}
	s.command(line)
	if !s.try(t.Context()) || len(s.report(now).Achieved) != 0 {
		t.Errorf("%+v", s.report(now))
	}
	var none *sampler
	none.observed(nil)
}
