// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sender

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender/queue"
)

// log is where a service under test writes to.
type testLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *testLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func serveConfig(t *testing.T, framing string, to ...string) (cfg Config, watched string) {
	t.Helper()
	cfg, watched = config(t), t.TempDir()
	cfg.Addresses, cfg.Framing, cfg.Parallel, cfg.Messages = to, framing, 4, &testLog{}
	cfg.Queue = QueueConfig{Dir: filepath.Join(t.TempDir(), "queue"), Watch: []string{watched}, ScanInterval: 10 * time.Millisecond}
	return cfg, watched
}

// started runs a service until stop is called, which returns its error.
func started(t *testing.T, cfg Config) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() { cancel(); err = <-done })
		return err
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("the service ends with %v", err)
		}
		if t.Failed() {
			t.Log(cfg.Messages)
		}
	})
	return stop
}

// put writes a file as instruments do that rename it once it is whole.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.WriteFile(path+".tmp", []byte(text), 0o640), os.Rename(path+".tmp", path)); err != nil {
		t.Fatal(err)
	}
}

func owed(cfg Config) []string {
	var names []string
	files, _ := os.ReadDir(filepath.Join(cfg.Queue.Dir, "objects"))
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

func (p *peer) has(texts ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range texts {
		if p.objects[sumOf(text)] == 0 {
			return false
		}
	}
	return true
}

func sumOf(text string) wire.Digest { return wire.Digest(sha256.Sum256([]byte(text))) }

// TestWatch: files are sent once each, as they come, kept where they are or
// taken away, and a restart sends none again.
func TestWatch(t *testing.T) {
	for _, move := range []bool{false, true} {
		for framing, behave := range map[string]func(*peer, *net.TCPConn){wire.FramingUntilClose: good, wire.FramingLengthPrefixed: goodPipe(1)} {
			t.Run(fmt.Sprint(framing, " move ", move), func(t *testing.T) {
				t.Parallel()
				a, b := newPeer(t, behave), newPeer(t, behave)
				cfg, watched := serveConfig(t, framing, a.address(), b.address())
				cfg.Queue.Move = move
				if err := os.MkdirAll(filepath.Join(watched, "2026", "11"), 0o750); err != nil {
					t.Fatal(err)
				}
				put(t, watched, "before", "was there before")
				stop := started(t, cfg)
				for i := range 40 {
					put(t, filepath.Join(watched, "2026", "11"), fmt.Sprintf("frame-%d", i), fmt.Sprint("frame ", i))
				}
				put(t, watched, "empty", "")
				put(t, watched, ".hidden", "hidden")
				put(t, watched, "half.part", "half")
				waitFor(t, func() bool {
					x, _ := a.arrived()
					y, _ := b.arrived()
					return x+y == 41 && len(owed(cfg)) == 0
				})
				if x, _ := a.arrived(); x == 0 || x == 41 {
					t.Errorf("one server got %d of 41", x)
				}
				_, err := os.Stat(filepath.Join(watched, "2026", "11", "frame-7"))
				if move != errors.Is(err, os.ErrNotExist) {
					t.Errorf("move %v: %v", move, err)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				started(t, cfg)
				put(t, watched, "after", "came after")
				waitFor(t, func() bool { return (a.has("came after") || b.has("came after")) && len(owed(cfg)) == 0 })
				x, _ := a.arrived()
				y, _ := b.arrived()
				if x+y != 42 {
					t.Errorf("%d objects arrived, want 42", x+y)
				}
				if got := readReport(t, cfg); len(got) != 42 {
					t.Errorf("%d lines in the report", len(got))
				}
			})
		}
	}
}

// TestOverwrittenFile: a rewritten file is another object, and a growing file is not taken before
// it has settled.
func TestOverwrittenFile(t *testing.T) {
	p := newPeer(t, good)
	cfg, watched := serveConfig(t, wire.FramingUntilClose, p.address())
	cfg.Queue.Settle = 300 * time.Millisecond
	started(t, cfg)
	put(t, watched, "latest.jpg", "first")
	waitFor(t, func() bool { return p.has("first") })
	put(t, watched, "latest.jpg", "second")
	waitFor(t, func() bool { return p.has("second") })
	f, err := os.Create(filepath.Join(watched, "growing"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	whole := ""
	for i := range 30 {
		line := fmt.Sprintln("line", i)
		whole += line
		if _, err := io.WriteString(f, line); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // it grows for longer than it has to settle
	}
	waitFor(t, func() bool { return p.has(whole) })
}

// TestRewrittenByADeadClock: a camera whose clock was never set rewrites its file with frames of one size. Each is sent.
func TestRewrittenByADeadClock(t *testing.T) {
	p := newPeer(t, good)
	cfg, watched := serveConfig(t, wire.FramingUntilClose, p.address())
	cfg.Queue.Settle, cfg.Queue.Rewritten = 0, []string{"image.jpg"}
	started(t, cfg)
	for _, text := range []string{"frame 1", "frame 2", "frame 3"} {
		path := filepath.Join(watched, ".image.jpg")
		epoch := time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, epoch, epoch), os.Rename(path, filepath.Join(watched, "image.jpg"))); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return p.has(text) })
	}
}

// TestRewrittenWithOneTime: versions that a camera dates alike, or earlier than ones before, have names of their own, also after a restart. A version
// has the name that it had before a kill, and one that was touched is not sent again.
func TestRewrittenWithOneTime(t *testing.T) {
	for _, move := range []bool{false, true} {
		p := newPeer(t, good)
		cfg, watched := serveConfig(t, wire.FramingUntilClose, p.address())
		cfg.Queue.Settle, cfg.Queue.Rewritten, cfg.Queue.Move = 0, []string{"image.jpg"}, move
		day := time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC)
		rewrite := func(text string, written time.Time) {
			t.Helper()
			path := filepath.Join(watched, ".image.jpg")
			if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, written, written), os.Rename(path, filepath.Join(watched, "image.jpg"))); err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return p.has(text) && len(owed(cfg)) == 0 })
		}
		stop := started(t, cfg)
		rewrite("frame 1", day)
		rewrite("frame 2", day)
		rewrite("frame 3", day.Add(-time.Hour))
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		stop = started(t, cfg)
		rewrite("frame 4", day)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		want := 4
		if !move {
			// A kill before it was written down that the last one is taken.
			journal := filepath.Join(cfg.Queue.Dir, "journal")
			text, err := os.ReadFile(journal)
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.SplitAfter(text, []byte("\n"))
			if last := lines[len(lines)-2]; !bytes.Contains(last, []byte(`"taken"`)) {
				t.Fatalf("the journal ends with %s", last)
			}
			if err := os.WriteFile(journal, bytes.Join(lines[:len(lines)-2], nil), 0o600); err != nil {
				t.Fatal(err)
			}
			stop = started(t, cfg)
			waitFor(t, func() bool { all, _ := p.arrived(); return all == 5 && len(owed(cfg)) == 0 })
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(watched, "image.jpg"), 0o640); err != nil {
				t.Fatal(err)
			}
			want = 5
		}
		started(t, cfg)
		waitFor(t, func() bool {
			text, err := os.ReadFile(filepath.Join(cfg.Queue.Dir, "journal"))
			return err == nil && (move || bytes.Count(text, []byte(`"taken"`)) == want)
		})
		rewrite("frame 5", day.Add(time.Minute)) // later than names by the file's time, not than names by our clock
		names := map[string]string{}
		report := readReport(t, cfg)
		for _, r := range report {
			if is, ok := names[r.Name]; ok && is != r.SHA256 {
				t.Errorf("move %t: two versions are called %s", move, r.Name)
			}
			names[r.Name] = r.SHA256
		}
		if len(names) != 5 || len(report) != want+1 || names["image-20150101T000000.000Z.jpg"] == "" {
			t.Errorf("move %t: %d lines in the report, names %v", move, len(report), names)
		}
	}
}

func TestVersionNames(t *testing.T) {
	now := time.Date(2026, 11, 21, 17, 1, 2, 345e6, time.UTC)
	later := now.Add(time.Hour)
	for _, c := range []struct {
		written, last time.Time
		want          string
	}{
		{now, time.Time{}, "live/image-20261121T170102.345Z.jpg"},
		{now, now.Add(-time.Millisecond), "live/image-20261121T170102.345Z.jpg"},
		{now.Add(time.Microsecond), now, "live/image-20261121T180102.345Z.jpg"}, // by milliseconds it is no later
		{time.Unix(0, 0), time.Time{}, "live/image-20261121T180102.345Z.jpg"},
		{time.Date(2107, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}, "live/image-20261121T180102.345Z.jpg"}, // FAT's last year
		{time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}, "live/image-20261121T180102.345Z.jpg"},
		{now.Add(-time.Hour), now, "live/image-20261121T180102.345Z.jpg"},
		{now, later, "live/image-20261121T180102.345Z-0123abcd.jpg"}, // the clock went back
	} {
		got, last := versionName("live/image.jpg", c.written, later, c.last, queue.Key{0x01, 0x23, 0xab, 0xcd})
		if got != c.want || last.Before(c.last) {
			t.Errorf("what was written at %v is called %s, and not %s; the last time is %v", c.written, got, c.want, last)
		}
	}
}

// TestServersDie: whatever becomes of servers, every object has its receipt in the
// end, and the queue is empty.
func TestServersDie(t *testing.T) {
	for framing, behave := range map[string][]func(*peer, *net.TCPConn){
		wire.FramingUntilClose:     {resetEarly, reset, bareClose, refuse(wire.CauseStoreUnavailable), good},
		wire.FramingLengthPrefixed: {afterSome(2, resetEarly), afterSome(0, func(p *peer, c *net.TCPConn) { p.receivePrefixed(c); _ = c.SetLinger(-1) }), afterSome(5, func(_ *peer, c *net.TCPConn) { _ = c.SetLinger(-1) }), goodPipe(1)},
	} {
		t.Run(framing, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, behave...)
			cfg, watched := serveConfig(t, framing, deadAddress(t), p.address())
			started(t, cfg)
			var texts []string
			for i := range 50 {
				texts = append(texts, strings.Repeat(fmt.Sprint("frame ", i), 1000))
				put(t, watched, fmt.Sprint("frame-", i), texts[i])
			}
			waitFor(t, func() bool { return p.has(texts...) && len(owed(cfg)) == 0 })
		})
	}
}

// TestKilledService: killed again and again while files come, it sends every one
// of them, and forgets none.
func TestKilledService(t *testing.T) {
	slow := func(p *peer, c *net.TCPConn) {
		for {
			r, ok := p.receivePrefixed(c)
			if !ok {
				return
			}
			time.Sleep(time.Duration(10+rand.IntN(20)) * time.Millisecond) // a server that takes its time
			_, _ = io.WriteString(c, r.Line())
		}
	}
	a, b := newPeer(t, slow), newPeer(t, slow)
	cfg, watched := serveConfig(t, wire.FramingLengthPrefixed, a.address(), b.address())
	var texts []string
	for incarnation := range 6 {
		cmd := exec.Command(os.Args[0], "--to", a.address()+","+b.address(), "--framing", "length-prefixed", "--watch", watched, "--queue", cfg.Queue.Dir,
			"--settle", "0", "--scan-interval", "10ms", "--newest-first", "--heartbeat", "0", "--parallel", "8")
		cmd.Env = append(os.Environ(), asProgram+"=1")
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			texts = append(texts, strings.Repeat(fmt.Sprint("frame ", incarnation, " ", i, " "), 200))
			put(t, watched, fmt.Sprintf("frame-%d-%d", incarnation, i), texts[len(texts)-1])
		}
		time.Sleep(time.Duration(50+rand.IntN(200)) * time.Millisecond) // it is killed at any time
		if err := cmd.Process.Kill(); err != nil {
			t.Fatalf("%v: it ended by itself: %s", err, said.String())
		}
		_ = cmd.Wait()
	}
	before := len(owed(cfg))
	started(t, cfg)
	all := func() bool {
		for _, text := range texts {
			if !a.has(text) && !b.has(text) {
				return false
			}
		}
		return true
	}
	waitFor(t, func() bool { return all() && len(owed(cfg)) == 0 })
	t.Logf("%d files, %d in the queue after the last kill", len(texts), before)
}

// TestQueueUntilEmpty: files and lines of the command line go through the queue;
// interrupted, what has no receipt is sent by the next run.
func TestQueueUntilEmpty(t *testing.T) {
	p := newPeer(t, good)
	dir, want := folder(t, 30, 100)
	cfg, _ := serveConfig(t, wire.FramingUntilClose, p.address())
	cfg.Queue.Watch, cfg.Paths = nil, []string{dir}
	if err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if all, different := p.arrived(); all != len(want) || different != len(want) || len(owed(cfg)) > 0 {
		t.Errorf("%d objects, %d different ones, want %d; left %v", all, different, len(want), owed(cfg))
	}

	// No server: the queue holds it all.
	away := cfg
	away.Addresses, away.Paths, away.Lines, away.Stdin = []string{deadAddress(t)}, []string{"-"}, true, strings.NewReader("one\ntwo\n\nthree\n")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, away) }()
	waitFor(t, func() bool { return len(owed(cfg)) == 3 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "3 stay in the queue") {
		t.Errorf("got %v", err)
	}
	cfg.Paths = nil
	if err := Run(t.Context(), cfg); err != nil || !p.has("one", "two", "three") || len(owed(cfg)) > 0 {
		t.Errorf("got %v; left %v", err, owed(cfg))
	}
}
