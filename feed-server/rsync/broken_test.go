// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/rsync"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// relay stands between a client and the server, and cuts the link after so many bytes. If change is
// set, it changes what the client sends.
func (l *lab) relay(t *testing.T, cut *atomic.Int64, change func([]byte)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("tcp", l.server.Address())
				if err != nil {
					return
				}
				defer server.Close()
				go func() {
					buffer := make([]byte, 64<<10)
					for {
						n, err := client.Read(buffer)
						if change != nil {
							change(buffer[:n])
						}
						if _, failed := server.Write(buffer[:n]); err != nil || failed != nil {
							return
						}
					}
				}()
				_, _ = io.CopyN(client, server, cut.Load())
			}()
		}
	}()
	return "rsync://" + listener.Addr().String() + "/" + archivetest.Site
}

// A link that is cut in the middle of a file costs what was on its way: the next run takes
// what came before.
func TestCut(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	body := noise("large", 8<<20)
	l.Wait(l.Put(camera, "large.bin", body, at(noon)))
	matched := regexp.MustCompile(`Matched data: ([\d,]+) bytes`)
	for _, how := range [][]string{{"-a", "--partial"}, {"-a", "--partial-dir=.partial"}, {"-a", "--inplace"}, {"-az", "--zc=zlibx", "--partial"}, {"-az", "--partial"}, {"-a", "--append"}, {"-a", "--append-verify"}} {
		t.Run(strings.Join(how, " "), func(t *testing.T) {
			var cut atomic.Int64
			cut.Store(5 << 20)
			module, dir := l.relay(t, &cut, nil), t.TempDir()
			l.run(t, 12, append(how, module+"/"+camera+"/", dir)...)
			cut.Store(1 << 40)
			out := l.run(t, 0, append(how, "--stats", module+"/"+camera+"/", dir)...)
			if diff := cmp.Diff(map[string]string{"large.bin": body}, files(t, dir)); diff != "" {
				t.Error("the file is another")
			}
			if m := matched.FindStringSubmatch(out); len(how) == 2 && !strings.Contains(how[1], "append") && (m == nil || len(m[1]) < len("4,000,000")) {
				t.Errorf("what came before was sent again:\n%s", out)
			}
		})
	}
	// With all of it damaged but some blocks, these are taken.
	dir := t.TempDir()
	write(t, filepath.Join(dir, "large.bin"), strings.Repeat("x", 1<<20)+body[1<<20:6<<20])
	if out := l.run(t, 0, "-a", "--stats", "--no-whole-file", l.module+"/"+camera+"/", dir); files(t, dir)["large.bin"] != body {
		t.Error(out)
	}
	if l.counter("substorm_rsync_matched_bytes_total") == 0 {
		t.Error("no block was matched")
	}
}

// Clients of before rsync 3.2 choose no checksum and no compression by name, and flags of
// entries are bytes; older ones know still less.
func TestOlderClients(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := l.fill()
	const can = "e.iLsfxCIvu"
	for name, less := range map[string]string{"3.1": "e.iLsfxC...", "3.0.7": "e.iLsf.....", "3.0.0": "e.iL......."} {
		for _, how := range [][]string{{"-a"}, {"-az"}, {"-ac"}, {"-a", "--no-i-r"}, {"-a", "--protocol=30"}, {"-a", "--inplace", "--no-whole-file"}} {
			t.Run(name+" "+strings.Join(how, " "), func(t *testing.T) {
				var changed atomic.Bool
				var cut atomic.Int64
				cut.Store(1 << 40)
				module := l.relay(t, &cut, func(sent []byte) {
					without, is := less, can
					if slices.Contains(how, "--no-i-r") { // the client does not say i
						without, is = strings.Replace(less, "i", "", 1), strings.Replace(can, "i", "", 1)
					}
					if at := bytes.Index(sent, []byte(is)); at >= 0 {
						copy(sent[at:], without)
						changed.Store(true)
					}
				})
				dir := t.TempDir()
				if err := os.Mkdir(filepath.Join(dir, camera), 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(dir, camera, "large.bin"), want[camera+"/large.bin"][:2<<20])
				out := l.run(t, 0, append(how, "--stats", module+"/", dir)...)
				if diff := cmp.Diff(want, files(t, dir)); diff != "" || !changed.Load() {
					t.Fatalf("changed %t (-want +got):\n%s", changed.Load(), diff)
				}
				if slices.Contains(how, "--inplace") && strings.Contains(out, "Matched data: 0 bytes") {
					t.Errorf("no block was matched:\n%s", out)
				}
				if out := l.run(t, 0, append(how, "-i", module+"/", dir)...); out != "" {
					t.Errorf("again: %s", out)
				}
			})
		}
	}
}

// One address may connect as often as the limits of robots say.
func TestLimited(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(c *rsync.Config) {
		c.Admission = endpoint.NewAdmission(endpoint.AdmissionConfig{
			Limits: endpoint.Limits{Robot: endpoint.Rate{PerSecond: 0.001, Burst: 1}, Patience: time.Millisecond}, Logger: c.Logger, Metrics: prometheus.NewRegistry(),
		})
	})
	l.fill()
	l.run(t, 0, "-a", l.module+"/", t.TempDir())
	if out := l.run(t, 5, "-a", l.module+"/", t.TempDir()); !strings.Contains(out, "@ERROR: you may make 0.001 requests a second here") {
		t.Error(out)
	}
	if l.counter("substorm_rsync_refused_total") != 1 {
		t.Error("it was not counted")
	}
}

// A link that is cut again and again, with a client that resumes each time, leads to the same
// files.
func TestCutOften(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := l.fill()
	var cut atomic.Int64
	module, dir := l.relay(t, &cut, nil), t.TempDir()
	for i := range 10 {
		cut.Store(int64(200_000 * (i + 1)))
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		out, err := exec.CommandContext(ctx, program(t), "-a", "--partial", module+"/", dir).CombinedOutput()
		cancel()
		var exited *exec.ExitError
		if err != nil && !errors.As(err, &exited) {
			t.Fatalf("%v: %s", err, out)
		}
	}
	cut.Store(1 << 40)
	l.run(t, 0, "-a", module+"/", dir)
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An instrument that is closed while it is sent is not sent to its end.
func TestClosed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	body := noise("large", 64<<20)
	l.Wait(l.Put(camera, "large.bin", body, at(noon)))
	dir := t.TempDir()
	client := exec.CommandContext(t.Context(), program(t), "-a", "--no-motd", "--bwlimit=8M", l.module+"/", dir)
	var said strings.Builder
	client.Stderr = &said
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	l.Until("some of it came", func() bool {
		found, err := filepath.Glob(filepath.Join(dir, camera, ".large.bin.*"))
		if err != nil || len(found) == 0 {
			return false
		}
		info, err := os.Stat(found[0])
		return err == nil && info.Size() > 1<<20
	})
	s := *l.Snapshot()
	s.Instruments = maps.Clone(s.Instruments)
	in := s.Instruments[camera]
	in.Access = archivetest.Restricted
	s.Instruments[camera] = in
	l.Set(&s)
	_ = client.Wait()
	if client.ProcessState.ExitCode() != 23 || !strings.Contains(said.String(), "not public any more") {
		t.Errorf("exit %d: %s", client.ProcessState.ExitCode(), said.String())
	}
	if all := files(t, dir); len(all) > 0 {
		t.Errorf("%d files are there", len(all))
	}
}

// A client does not keep files that are damaged in the store, or gone, and the archivist gets a
// report.
func TestDamaged(t *testing.T) {
	t.Parallel()
	var told atomic.Int64
	l := newLab(t, func(c *rsync.Config) { c.Damaged = func(string, wire.Record, bool) { told.Add(1) } })
	want := l.fill()
	large := l.Put(camera, "damaged/large", noise("a", 3<<20), at(noon))
	small := l.Put(camera, "damaged/small", noise("b", 3000), at(noon))
	gone := l.Put(camera, "damaged/gone", noise("c", 3000), at(noon))
	l.Wait(gone)
	for _, r := range []wire.Record{large, small} {
		if err := l.Store.Put(t.Context(), r.Key, strings.NewReader(noise("other", int(r.Size))), r.Size, objectstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Store.Delete(t.Context(), gone.Key); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "mine"), "mine")
	out := l.run(t, 23, "-a", "--delete", l.module+"/", dir)
	if got := files(t, dir); !cmp.Equal(want, got) && !cmp.Equal(with(want, "mine", "mine"), got) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
	if told.Load() < 3 || strings.Count(out, "damaged in the store") < 3 {
		t.Errorf("%d damages were told: %s", told.Load(), out)
	}
}

func with(all map[string]string, path, body string) map[string]string {
	more := maps.Clone(all)
	more[path] = body
	return more
}

// If the store does not answer, a client gets an error, keeps what it has, and gets the rest later.
func TestOutage(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := l.fill()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "mine"), "mine")
	l.MinIO.Stop()
	out := l.run(t, 23, "-a", "--delete", l.module+"/", dir)
	if !strings.Contains(out, "the archive cannot be read now") || files(t, dir)["mine"] != "mine" {
		t.Error(out)
	}
	l.MinIO.Start()
	l.run(t, 0, "-a", "--delete", l.module+"/", dir)
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A client that sends what makes no sense is cut off, and others are served.
func TestGarbage(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := l.fill()
	start := "@RSYNCD: 32.0 md5\n" + archivetest.Site + "\n--server\x00--sender\x00-logDtpre.iLsfxCIvu\x00.\x00" + archivetest.Site + "/\x00\x00"
	names := "\x03md5"
	frame := func(data string) string {
		return string([]byte{byte(len(data)), byte(len(data) >> 8), byte(len(data) >> 16), 7}) + data
	}
	for name, says := range map[string]string{
		"HTTP":                "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"no end of the line":  strings.Repeat("x", 1<<20),
		"a version too old":   "@RSYNCD: 26\nx\n",
		"a version too large": "@RSYNCD: 999999999999999999999.0\nx\n",
		"too many arguments":  "@RSYNCD: 32.0 md5\n" + archivetest.Site + "\n" + strings.Repeat("-v\x00", 5000),
		"long arguments":      "@RSYNCD: 32.0 md5\n" + archivetest.Site + "\n" + strings.Repeat("x", 1<<20),
		"no names":            start + "\xff\xff",
		"a wrong frame":       start + names + "\xff\xff\xff\x01",
		"a long filter":       start + names + frame("\xff\xff\xff\x7f"),
		"an index of no file": start + names + frame("\x00\x00\x00\x00") + frame("\xfe\xff\xff\xff\xff\x00\x80"+strings.Repeat("\x00", 16)),
		"blocks of no size":   start + names + frame("\x00\x00\x00\x00") + frame("\x04\x00\x80\xff\xff\xff\x7f\x00\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00"),
		"ends early":          start + names + frame("\x00\x00\x00\x00") + "\x00",
	} {
		conn, err := net.Dial("tcp", l.server.Address())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(testenv.Patience))
		_, _ = io.WriteString(conn, says) // it may be cut off before
		if strings.HasSuffix(says, "\x00") || strings.Contains(name, "no names") {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection stays open", name)
		}
		conn.Close()
	}
	dir := t.TempDir()
	l.run(t, 0, "-a", l.module+"/", dir)
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// wantsAll is what a client that wants all sends until it has its turn.
const wantsAll = "@RSYNCD: 32.0 md5\n" + archivetest.Site + "\n--server\x00--sender\x00-logDtpre.iLsfxCIvu\x00.\x00" + archivetest.Site + "/\x00\x00\x03md5\x04\x00\x00\x07\x00\x00\x00\x00"

// There are as many transfers as memory is for, and of one address half of them.
func TestFull(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(c *rsync.Config) { c.MaxTransfers = 1 })
	l.server.Wait(100 * time.Millisecond)
	l.fill()
	hold, err := net.Dial("tcp", l.server.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	// It says all that it wants, and asks for nothing then.
	if _, err := io.WriteString(hold, wantsAll); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "a transfer is under way", func() bool { return l.counter("substorm_rsync_transfers_total") > 0 })
	if out := l.run(t, 5, "-a", l.module+"/", t.TempDir()); !strings.Contains(out, "has no memory for another transfer") {
		t.Error(out)
	}
	hold.Close()
	l.run(t, 0, "-a", l.module+"/", t.TempDir())
}

// A list that does not fit in memory is refused with what to do, and nothing is deleted for it.
func TestLongList(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(c *rsync.Config) { c.Memory, c.MaxTransfers = 1, 2 })
	l.fill()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "mine"), "mine")
	out := l.run(t, 23, "-a", "--delete", l.module+"/", dir)
	if !strings.Contains(out, "longer than this server has memory for") || files(t, dir)["mine"] != "mine" {
		t.Error(out)
	}
}

// Transfers end before a server does, as long as they have time for it.
func TestDrain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	body := noise("large", 32<<20)
	l.Wait(l.Put(camera, "large.bin", body, at(noon)))
	dir := t.TempDir()
	client := exec.CommandContext(t.Context(), program(t), "-a", "--no-motd", "--bwlimit=16M", l.module+"/", dir)
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	l.Until("it began", func() bool {
		found, err := filepath.Glob(filepath.Join(dir, camera, ".large.bin.*"))
		return err == nil && len(found) > 0
	})
	if err := l.server.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if err := client.Wait(); err != nil || files(t, dir)[camera+"/large.bin"] != body {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.server.Address()); err == nil {
		t.Error("it still takes clients")
	}
}
