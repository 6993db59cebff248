// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/rsync"
	"github.com/substorm/substorm/internal/testenv"
)

// slowLink stands between a client and the server, and carries so many bytes a second. Little is on the link at a time.
func (l *lab) slowLink(t *testing.T, bytesPerSecond int) (module string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	carry := func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		for {
			time.Sleep(100 * time.Millisecond)
			if _, err := io.CopyN(to, from, int64(bytesPerSecond/10)); err != nil {
				return
			}
		}
	}
	dialer := net.Dialer{ControlContext: smallBuffer}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := dialer.Dial("tcp", l.server.Address())
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				defer server.Close()
				_, _ = io.Copy(server, client)
			}()
			go carry(client, server)
		}
	}()
	return "rsync://" + listener.Addr().String() + "/" + archivetest.Site
}

// smallBuffer has the kernel of who dials hold little, and take segments as they are on an Ethernet.
func smallBuffer(_ context.Context, _, _ string, c syscall.RawConn) (failed error) {
	err := c.Control(func(fd uintptr) {
		failed = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<10), unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1448))
	})
	return errors.Join(err, failed)
}

// others wait for a turn until the test ends, one after another.
func (l *lab) others(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() {
			for ctx.Err() == nil {
				conn, err := net.Dial("tcp", l.server.Address())
				if err != nil {
					t.Error(err)
					return
				}
				end := context.AfterFunc(ctx, func() { conn.Close() })
				_, _ = io.WriteString(conn, wantsAll)
				_, _ = io.Copy(io.Discard, conn) // until the server asks it to come again
				end()
				conn.Close()
			}
		})
	}
	t.Cleanup(func() { stop(); waiting.Wait() })
}

// A client behind a slow link gets all, though others wait for its turn all the time.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	for _, how := range [][]string{{"-a"}, {"-a", "--bwlimit=150"}, {"-ac"}} {
		t.Run(strings.Join(how, " "), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, func(c *rsync.Config) { c.MaxTransfers = 1 })
			want, dir := l.fill(), t.TempDir()
			module := l.slowLink(t, 160<<10)
			done := make(chan struct{})
			go func() {
				defer close(done)
				l.Until("the transfer began", func() bool { return l.counter("substorm_rsync_transfers_total") > 0 })
				l.others(t)
			}()
			l.run(t, 0, append(how, module+"/", dir)...)
			<-done
			if diff := cmp.Diff(want, files(t, dir)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// wait waits until a client has got a turn.
func (l *lab) wait(transfers float64) {
	l.Helper()
	l.Until("a transfer began", func() bool { return l.counter("substorm_rsync_transfers_total") >= transfers })
}

// A client that stops in the middle of a transfer, and one that waits for the names of --files-from itself, give way to others.
func TestStoppedClientsGiveWay(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(c *rsync.Config) { c.MaxTransfers = 1 })
	l.server.Hurry()
	want := l.fill()
	want[camera+"/largest.bin"] = noise("largest", 24<<20)
	l.Wait(l.Put(camera, "largest.bin", want[camera+"/largest.bin"], at(noon)))
	began := 0.
	for name, hold := range map[string]func(dir string) *exec.Cmd{
		"stopped": func(dir string) *exec.Cmd {
			client := exec.CommandContext(t.Context(), program(t), "-a", "--no-motd", "--bwlimit=4M", l.module+"/", dir)
			client.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // rsync is two processes
			if err := client.Start(); err != nil {
				t.Fatal(err)
			}
			l.Until("it receives a file", func() bool {
				found, err := filepath.Glob(filepath.Join(dir, camera, ".largest.bin.*"))
				return err == nil && len(found) > 0
			})
			if err := syscall.Kill(-client.Process.Pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			return client
		},
		"no names": func(dir string) *exec.Cmd {
			client := exec.CommandContext(t.Context(), program(t), "-a", "--no-motd", "--files-from=-", l.module+"/", dir)
			client.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			names, err := client.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { names.Close() })
			if err := client.Start(); err != nil {
				t.Fatal(err)
			}
			return client
		},
	} {
		client := hold(t.TempDir())
		l.wait(began + 1)
		dir := t.TempDir()
		l.run(t, 0, "-a", l.module+"/", dir)
		if diff := cmp.Diff(want, files(t, dir)); diff != "" {
			t.Errorf("%s (-want +got):\n%.500s", name, diff)
		}
		began += 2
		_ = syscall.Kill(-client.Process.Pid, syscall.SIGKILL)
		_ = client.Wait()
	}
	if cut := l.counter("substorm_rsync_cut_off_total"); cut != 2 {
		t.Errorf("%v clients are cut off", cut)
	}
}

// A short pattern that means the same directory again and again is what it says, once.
func TestWildcardsWithParents(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for i := range 300 {
		last := l.Put(camera, fmt.Sprintf("d/image-%03d.jpg", i), "x", at(noon.Add(time.Duration(i)*time.Second)))
		if i == 299 {
			l.Wait(last)
		}
	}
	l.List()
	dir := t.TempDir()
	l.run(t, 0, "-a", l.module+"/"+camera+"/d/*/../*/../*", dir)
	if all := files(t, dir); len(all) != 300 {
		t.Errorf("%d files", len(all))
	}
}

// Files that are named by arguments take memory as listed ones do.
func TestNamedInMemory(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(c *rsync.Config) { c.Memory = 1 << 20 })
	for i := range 300 {
		last := l.Put(camera, fmt.Sprintf("d/image-%03d.jpg", i), "x", at(noon.Add(time.Duration(i)*time.Second)))
		if i == 299 {
			l.Wait(last)
		}
	}
	l.List()
	if out := l.run(t, 23, "-a", l.module+"/"+camera+"/d/*", t.TempDir()); !strings.Contains(out, "longer than this server has memory for") {
		t.Error(out)
	}
	if dir := t.TempDir(); l.run(t, 0, "-a", l.module+"/"+camera+"/d", dir) != "" || len(files(t, dir)) != 300 {
		t.Error("memory was not given back")
	}
}

// Clients that send what makes no sense are counted, and write nothing into the log.
func TestGarbageIsNotLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l := newLab(t, func(c *rsync.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	const times = 50
	for range times {
		conn, err := net.Dial("tcp", l.server.Address())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(testenv.Patience))
		_, _ = io.WriteString(conn, strings.Repeat("x", 1100))
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
	}
	l.Until("all are counted", func() bool { return l.counter("substorm_rsync_connections_total") == times })
	if log.Len() > 0 {
		t.Errorf("the log has %d bytes: %.300s", log.Len(), log.String())
	}
}
