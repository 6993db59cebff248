// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender"
	"github.com/substorm/substorm/sender/queue"
)

// asProgram makes the test binary act as `substorm`.
const asProgram = "SUBSTORM_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		err := Run(context.Background(), Config{Program: "substorm", Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
		os.Exit(usage.ExitCode(err))
	}
	os.Exit(m.Run())
}

// bigFile writes a file of 8 MiB that nothing else has the bytes of.
func bigFile(t *testing.T, dir, name string) (path, digest string) {
	t.Helper()
	return randomNamed(t, dir, name, 8<<20)
}

func randomNamed(t *testing.T, dir, name string, size int) (path, digest string) {
	t.Helper()
	data := make([]byte, size)
	_, _ = rand.Read(data)
	path = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return path, hex.EncodeToString(sum[:])
}

const (
	whole    = 8 << 20
	oneChunk = 4<<20 + 64<<10 // the third one, of 1, 2 and 4 MiB; and the headers of all
)

// TestUploadGoesOn: over a way that cuts each connection, with gateways that are killed, or with a sender that is killed, an upload
// continues where it was.
func TestUploadGoesOn(t *testing.T) {
	s := newWebStation(t, func(*wire.InstrumentEntry) {})
	want := map[string]string{}
	t.Run("the way breaks", func(t *testing.T) {
		dir, report := t.TempDir(), filepath.Join(t.TempDir(), "report.jsonl")
		path, digest := bigFile(t, dir, "broken.bin")
		want[skyNames+"broken.bin"] = digest
		c := newCutter(t, s.ports[0], 2<<20, 0)
		_, stderr, code := runProgram(t, "substorm", "send", "--to", c.url(), "--report", report, path)
		if r := receipts(t, report); code != 0 || len(r) != 1 || r[0].Outcome != sender.Received || r[0].SHA256 != digest {
			t.Fatalf("exit code %d, report %+v\n%s", code, r, stderr)
		}
		if c.cuts.Load() == 0 || c.up.Load() >= whole+oneChunk {
			t.Errorf("%d cuts, %d bytes went up for %d", c.cuts.Load(), c.up.Load(), whole)
		}
		t.Logf("%d cuts, %d bytes went up for %d", c.cuts.Load(), c.up.Load(), whole)
	})
	t.Run("the sender is killed", func(t *testing.T) {
		dir, queue, report := t.TempDir(), filepath.Join(t.TempDir(), "queue"), filepath.Join(t.TempDir(), "report.jsonl")
		path, digest := bigFile(t, dir, "killed.bin")
		want[skyNames+"killed.bin"] = digest
		c := newCutter(t, s.ports[0], 0, time.Millisecond)
		args := []string{"send", "--to", c.url(), "--queue", queue, "--report", report}
		cmd := exec.Command(os.Args[0], append(args, path)...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() error {
			if c.up.Load() < whole/2 {
				return fmt.Errorf("%d bytes went up", c.up.Load())
			}
			return nil
		})
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		before := c.up.Load()
		if _, stderr, code := runProgram(t, "substorm", args...); code != 0 {
			t.Fatalf("exit code %d\n%s", code, stderr)
		}
		if r := receipts(t, report); len(r) != 1 || r[0].Outcome != sender.Received || r[0].SHA256 != digest {
			t.Errorf("report %+v", r)
		}
		if before >= whole || c.up.Load() >= whole+oneChunk {
			t.Errorf("%d bytes went up before, %d in all, for %d", before, c.up.Load(), whole)
		}
		t.Logf("%d bytes went up before, %d in all, for %d", before, c.up.Load(), whole)
		for _, folder := range []string{"objects", "uploads"} {
			if left, err := os.ReadDir(filepath.Join(queue, folder)); err != nil || len(left) > 0 {
				t.Errorf("left in %s: %v, %v", folder, left, err)
			}
		}
	})
	t.Run("a gateway is killed", func(t *testing.T) {
		dir, report := t.TempDir(), filepath.Join(t.TempDir(), "report.jsonl")
		path, digest := bigFile(t, dir, "night/failover.bin")
		want[skyNames+"night/failover.bin"] = digest
		ways := []*cutter{newCutter(t, s.ports[0], 0, time.Millisecond), newCutter(t, s.ports[1], 0, time.Millisecond)}
		done := make(chan int, 1)
		var stderr string
		go func() {
			var code int
			_, stderr, code = runProgram(t, "substorm", "send", "--to", ways[0].url()+","+ways[1].url(), "--report", report, filepath.Dir(filepath.Dir(path)))
			done <- code
		}()
		used := -1
		waitFor(t, func() error {
			for i, w := range ways {
				if w.up.Load() > whole/2 {
					used = i
					return nil
				}
			}
			return fmt.Errorf("%d and %d bytes went up", ways[0].up.Load(), ways[1].up.Load())
		})
		s.gateways[used].Kill()
		code := <-done
		up := ways[0].up.Load() + ways[1].up.Load()
		if r := receipts(t, report); code != 0 || len(r) != 1 || r[0].Outcome != sender.Received || r[0].SHA256 != digest || r[0].Server != ways[1-used].url() {
			t.Errorf("exit code %d, report %+v\n%s", code, r, stderr)
		}
		if up >= whole+oneChunk {
			t.Errorf("%d bytes went up for %d", up, whole)
		}
		t.Logf("%d bytes went up for %d", up, whole)
		s.gateways[used].Start()
	})
	t.Run("a gateway falls silent", func(t *testing.T) {
		dir, report := t.TempDir(), filepath.Join(t.TempDir(), "report.jsonl")
		path, digest := bigFile(t, dir, "silent.bin")
		want[skyNames+"silent.bin"] = digest
		ways := []*cutter{newCutter(t, s.ports[0], 0, time.Millisecond), newCutter(t, s.ports[1], 0, time.Millisecond)}
		done := make(chan int, 1)
		var stderr string
		go func() {
			var code int
			_, stderr, code = runProgram(t, "substorm", "send", "--to", ways[0].url()+","+ways[1].url(), "--receipt-timeout", "1h", "--report", report, path)
			done <- code
		}()
		used := -1
		waitFor(t, func() error {
			for i, w := range ways {
				if w.up.Load() > whole/4 {
					used = i
					return nil
				}
			}
			return fmt.Errorf("%d and %d bytes went up", ways[0].up.Load(), ways[1].up.Load())
		})
		s.gateways[used].Pause()
		code := <-done
		if r := receipts(t, report); code != 0 || len(r) != 1 || r[0].Outcome != sender.Received || r[0].SHA256 != digest || r[0].Server != ways[1-used].url() {
			t.Errorf("exit code %d, report %+v\n%s", code, r, stderr)
		}
		t.Logf("%d and %d bytes went up for %d", ways[0].up.Load(), ways[1].up.Load(), whole)
		s.gateways[used].Continue()
	})
	s.await(t, want)
}

// TestHTTPNames: objects bear the names of their files, with and without a queue; objects that are sent again are reported, and other
// bytes under a name are refused. The gateway takes a few objects a second, and says when it takes more (429).
func TestHTTPNames(t *testing.T) {
	s := newWebStation(t, func(e *wire.InstrumentEntry) { e.ObjectsPerSecond = 5 })
	to := fmt.Sprintf("http://127.0.0.1:%d/in/allsky/", s.ports[0])
	dir, want := t.TempDir(), map[string]string{}
	put := func(name string, size int) string {
		path, digest := randomNamed(t, dir, name, size)
		want[skyNames+name] = digest
		return path
	}
	put("a.jpg", 1)
	put("2026/11/21/night 1 %20?.jpg", 70_000)
	put("2026/whole.bin", 1<<20)
	big := put("2026/big.bin", 1<<20+1)
	run := func(code int, args ...string) string {
		t.Helper()
		_, stderr, got := runProgram(t, "substorm", append([]string{"send", "--to", to}, args...)...)
		if got != code {
			t.Fatalf("%v: exit code %d\n%s", args, got, stderr)
		}
		return stderr
	}
	run(0, dir)
	s.await(t, want)
	run(0, dir) // again: reported
	if _, stderr, code := runProgram(t, "substorm", "send", "--to", "http://"+mute(t)+"/in/allsky/,"+to, "--receipt-timeout", "1h", dir); code != 0 {
		t.Errorf("beside a server that never answers: exit code %d\n%s", code, stderr)
	}
	time.Sleep(time.Second) // the gateway takes all four now: what a refused try sent would count too
	queued := filepath.Join(t.TempDir(), "queue")
	run(0, "--queue", queued, "--daily-budget", "100M", "--max-rate", "50M", dir)
	q, err := queue.Open(queue.Config{Dir: queued})
	if err != nil {
		t.Fatal(err)
	}
	if _, spent := q.Spent(); spent < 2<<20 || spent > 3<<20 {
		t.Errorf("%d bytes count for the day, about %d were sent", spent, 2<<20)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	s.await(t, want)

	small, digest := randomNamed(t, dir, "a.jpg", 10)
	randomNamed(t, dir, "2026/big.bin", 2<<20)
	said := run(1, dir)
	for _, path := range []string{small, big} {
		if !strings.Contains(said, path+": refused NameConflict") && !strings.Contains(said, path+": 2026/big.bin: refused NameConflict") {
			t.Errorf("it does not name %s:\n%s", path, said)
		}
	}
	queued = filepath.Join(t.TempDir(), "queue")
	run(1, "--queue", queued, dir)
	if aside, err := os.ReadDir(filepath.Join(queued, "refused")); err != nil || len(aside) != 2 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
	s.await(t, want)
	run(0, "--name-from", "none", filepath.Join(dir, "a.jpg"))
	waitFor(t, func() error {
		for key, is := range s.listed(t) {
			if is == digest && !strings.HasPrefix(key, skyNames) {
				return nil
			}
		}
		return fmt.Errorf("no object without a name: %v", s.listed(t))
	})
}

// TestHTTPSToken: over TLS with the token of a file; the token is in no message.
func TestHTTPSToken(t *testing.T) {
	const token = "a-token-of-many-letters-0123456789"
	server := testenv.NewCA(t)
	s := newWebStation(t, func(e *wire.InstrumentEntry) {
		for i := range e.Listeners {
			e.Listeners[i].TLS, e.Listeners[i].Tokens = wire.TLSServer, []wire.TokenHash{wire.HashToken([]byte("salt"), token)}
		}
	}, "--tls-dir", server.Dir(t, "gateway"))
	right, wrong, dir := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "token"), t.TempDir()
	for file, text := range map[string]string{right: token + "\n", wrong: "not-" + token} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{}
	for name, size := range map[string]int{"small": 100, "big": 3 << 20} {
		_, want[skyNames+name] = randomNamed(t, dir, name, size)
	}
	transmit := func(code int, tokenFile string) string {
		t.Helper()
		_, stderr, got := runProgram(t, "substorm", "send", "--to", fmt.Sprintf("https://127.0.0.1:%d/in/allsky/", s.ports[0]), "--give-up-after", "1s",
			"--tls-ca", filepath.Join(server.Dir(t, "unused"), "ca.crt"), "--token-file", tokenFile, dir)
		if got != code || strings.Contains(stderr, token) {
			t.Errorf("exit code %d\n%s", got, stderr)
		}
		return stderr
	}
	if said := transmit(1, wrong); !strings.Contains(said, string(wire.CauseBadToken)) {
		t.Errorf("it says\n%s", said)
	}
	transmit(0, right)
	s.await(t, want)
}

// TestSendOfWhatIsGone: what the store lost, a sender that sends it again brings back, in one
// request and in pieces; it ends well only where the store has it.
func TestSendOfWhatIsGone(t *testing.T) {
	s := newWebStation(t, func(*wire.InstrumentEntry) {})
	dir := t.TempDir()
	for name, size := range map[string]int{"small.bin": 1000, "large.bin": 8 << 20} {
		t.Run(name, func(t *testing.T) {
			path, digest := randomNamed(t, dir, name, size)
			send := func() {
				t.Helper()
				if _, stderr, code := runProgram(t, "substorm", "send", "--to", fmt.Sprintf("http://127.0.0.1:%d/in/allsky/", s.ports[0]), path); code != 0 {
					t.Fatalf("exit code %d\n%s", code, stderr)
				}
			}
			send()
			key := wire.NamedKey("hub", "allsky", name, 1)
			waitFor(t, func() error {
				if is := s.listed(t)[key]; is != digest {
					return fmt.Errorf("%s is listed as %q", key, is)
				}
				return nil
			})
			if err := s.store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			send()
			body, _, err := s.store.Get(t.Context(), key, objectstore.All)
			if err != nil {
				t.Fatalf("the sender was told that it is archived: %v", err)
			}
			defer body.Close()
			h := sha256.New()
			if _, err := io.Copy(h, body); err != nil || hex.EncodeToString(h.Sum(nil)) != digest {
				t.Errorf("other bytes are stored, %v", err)
			}
		})
	}
	if all := s.listed(t); len(all) != 2 {
		t.Errorf("%d objects are listed, want 2: %v", len(all), all)
	}
}

// TestRewritten: of a file that the instrument rewrites under its name each version is received, under a name that has the time when it was written.
func TestRewritten(t *testing.T) {
	s := newWebStation(t, func(*wire.InstrumentEntry) {})
	dir, want := t.TempDir(), map[string]string{}
	cmd := sender.Command("send")
	cmd.SetArgs([]string{"--to", fmt.Sprintf("http://127.0.0.1:%d/in/allsky/", s.ports[0]), "--queue", filepath.Join(t.TempDir(), "queue"),
		"--watch", dir, "--settle", "0", "--scan-interval", "20ms", "--rewritten", "image.jpg"})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	written := time.Date(2026, 11, 21, 17, 1, 2, 345e6, time.UTC)
	for i := range 3 {
		path, digest := randomNamed(t, dir, ".image.unfinished", 1000+i)
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path, filepath.Join(dir, "image.jpg")); err != nil {
			t.Fatal(err)
		}
		want[skyNames+written.Format("image-20060102T150405.000Z.jpg")] = digest
		s.await(t, want)
		written = written.Add(time.Minute)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
