// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sender

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender/queue"
)

// TestSetAside: what no gateway takes, and what the disk changed, is kept apart,
// and holds up nothing.
func TestSetAside(t *testing.T) {
	picky := func(p *peer, c *net.TCPConn) {
		r, ok := p.receive(c)
		switch {
		case !ok:
		case r.Bytes > 100:
			p.say(c, "refused ObjectTooLarge\n")
		default:
			p.say(c, r.Line())
		}
	}
	p := newPeer(t, picky)
	cfg, watched := serveConfig(t, wire.FramingUntilClose, p.address())
	q, err := queue.Open(queue.Config{Dir: cfg.Queue.Dir})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(watched, "rotten")
	put(t, watched, "rotten", "as it was")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	bad, err := q.Add(queue.Source{Name: "rotten", Path: path, Observed: info.ModTime(), Key: queue.KeyOf(path, info.Size(), info.ModTime(), 0)})
	if err != nil || len(bad) != 1 {
		t.Fatal(bad, err)
	}
	if err := errors.Join(q.Close(), os.WriteFile(filepath.Join(cfg.Queue.Dir, "objects", bad[0].File()), []byte("as it is."), 0o640)); err != nil {
		t.Fatal(err)
	}
	stop := started(t, cfg)
	put(t, watched, "large", strings.Repeat("x", 101))
	put(t, watched, "small", "small")
	aside := func(folder string) int {
		files, _ := os.ReadDir(filepath.Join(cfg.Queue.Dir, folder))
		return len(files)
	}
	waitFor(t, func() bool {
		return p.has("small") && aside("refused") == 1 && aside("damaged") == 1 && len(owed(cfg)) == 0
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if p.has("as it is.") {
		t.Error("what the disk changed was sent to its end")
	}
	outcomes := map[Outcome]int{}
	for _, r := range readReport(t, cfg) {
		outcomes[r.Outcome]++
	}
	if outcomes[Received] != 1 || outcomes[Refused] != 1 || outcomes[Unsent] != 1 {
		t.Errorf("report: %v", outcomes)
	}
}

// TestDailyBudget: a budget that is spent stops the sending, also after a restart.
func TestDailyBudget(t *testing.T) {
	p := newPeer(t, good)
	cfg, watched := serveConfig(t, wire.FramingUntilClose, p.address())
	cfg.Queue.DailyBudget, cfg.Queue.MaxRate = 10_000, 10_000_000
	stop := started(t, cfg)
	for i := range 5 {
		put(t, watched, fmt.Sprint("frame-", i), strings.Repeat(fmt.Sprint(i), 3000))
	}
	spent := func() bool { return strings.Contains(cfg.Messages.(*testLog).String(), "budget is spent") }
	waitFor(t, func() bool { all, _ := p.arrived(); return all >= 3 && len(owed(cfg)) == 2 && spent() })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	cfg.Messages = &testLog{}
	started(t, cfg)
	waitFor(t, spent)
	if all, _ := p.arrived(); all != 3 && !midnightPassed(cfg) {
		t.Errorf("%d objects of 3000 bytes were sent in a day of 10000", all)
	}
}

// midnightPassed reports whether the test ran into another day.
func midnightPassed(cfg Config) bool {
	journal, _ := os.ReadFile(filepath.Join(cfg.Queue.Dir, "journal"))
	return strings.Count(string(journal), `"day":"`) != strings.Count(string(journal), `"day":"`+string(wire.DayOf(time.Now()))+`"`)
}

// TestDiskFull: what the queue's disk has no space for stays where it is, and is
// taken and sent once there is space.
func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a small disk needs a mount, which needs root (CAP_SYS_ADMIN)")
	}
	disk := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "substorm-send-test", disk).CombinedOutput(); err != nil {
		t.Skipf("a small disk needs a mount (CAP_SYS_ADMIN): %v: %s", err, out)
	}
	t.Cleanup(func() { // behind the service's own
		if out, err := exec.Command("umount", disk).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	var up atomic.Bool
	p := newPeer(t, func(p *peer, c *net.TCPConn) {
		if up.Load() {
			good(p, c)
		} else {
			refuse(wire.CauseStoreUnavailable)(p, c)
		}
	})
	cfg, watched := serveConfig(t, wire.FramingUntilClose, p.address())
	cfg.Queue.Dir = filepath.Join(disk, "queue")
	stop := started(t, cfg)
	var texts []string
	for i := range 40 {
		texts = append(texts, strings.Repeat(fmt.Sprintf("%04d", i), 25_000))
		put(t, watched, fmt.Sprint("frame-", i), texts[i])
	}
	waitFor(t, func() bool { return strings.Contains(cfg.Messages.(*testLog).String(), "no space left on device") })
	p.mu.Lock()
	clear(p.objects) // the objects that it refused
	p.mu.Unlock()
	if n := len(owed(cfg)); n == 0 || n >= 40 {
		t.Errorf("%d of 40 files fit", n)
	}
	up.Store(true)
	waitFor(t, func() bool { return p.has(texts...) && len(owed(cfg)) == 0 })
	waitFor(t, func() bool { return strings.Contains(cfg.Messages.(*testLog).String(), "can be taken again") })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestUnreadable: a file and a folder that cannot be read keep nothing else.
func TestUnreadable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("root runs the sender as somebody who may not read everything (CAP_SETUID)")
	}
	p := newPeer(t, good)
	dir, err := os.MkdirTemp("", "substorm-unreadable-*") // below folders that everybody may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	watched, program := filepath.Join(dir, "watched"), filepath.Join(dir, "send")
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Chmod(dir, 0o755), os.WriteFile(program, self, 0o755), os.MkdirAll(filepath.Join(watched, "closed"), 0o755), os.Mkdir(filepath.Join(dir, "run"), 0o777),
		os.Chown(filepath.Join(dir, "run"), 65534, 65534),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	put(t, watched, "a-secret", "secret")
	put(t, watched, "z-open", "open")
	for path, mode := range map[string]os.FileMode{filepath.Join(watched, "a-secret"): 0o600, filepath.Join(watched, "z-open"): 0o644, filepath.Join(watched, "closed"): 0o700} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, "--to", p.address(), "--watch", watched, "--queue", filepath.Join(dir, "run", "queue"), "--settle", "0", "--scan-interval", "10ms")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	said := &testLog{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said)
		}
	})
	waitFor(t, func() bool { return p.has("open") && strings.Contains(said.String(), "a-secret: permission denied") })
	if err := os.Chmod(filepath.Join(watched, "a-secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return p.has("secret") })
}
