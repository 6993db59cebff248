// SPDX-License-Identifier: Apache-2.0

package stream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

const (
	leaseTTL    = time.Second
	leaseBucket = "LEASE_thule"
	// leaseServer makes this test program the process of TestLeaseSurvivesNoPause.
	leaseServer = "SUBSTORM_TEST_LEASE_SERVER"
)

func leases(t *testing.T, js jetstream.JetStream, ttl time.Duration) jetstream.KeyValue {
	t.Helper()
	kv, err := js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: leaseBucket, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func acquire(ctx context.Context, kv jetstream.KeyValue, holder string) (*stream.Lease, error) {
	return stream.AcquireLease(ctx, kv, wire.ArchivistLease, wire.Lease{Holder: holder, Incarnation: holder + "-1"}, slog.New(slog.DiscardHandler))
}

func mustAcquire(t *testing.T, kv jetstream.KeyValue, holder string) *stream.Lease {
	t.Helper()
	l, err := acquire(t.Context(), kv, holder)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Check(); err != nil {
		t.Fatalf("just acquired: %v", err)
	}
	return l
}

func TestLease(t *testing.T) {
	kv := leases(t, testenv.NATS(t, testenv.NATSOptions{}).JetStream(t), leaseTTL)
	a := mustAcquire(t, kv, "a")
	entry, err := kv.Get(t.Context(), wire.ArchivistLease)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := wire.Decode[wire.Lease](entry.Value()); err != nil || l.Holder != "a" || l.Incarnation != "a-1" || l.Since.IsZero() {
		t.Errorf("the lease says %+v, %v", l, err)
	}
	// While it is renewed no other process gets it, however long that lasts.
	short, cancel := context.WithTimeout(t.Context(), 3*leaseTTL)
	defer cancel()
	if _, err := acquire(short, kv, "b"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("b acquired the lease that a holds: %v", err)
	}
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	if err := a.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.Check(); !errors.Is(err, stream.ErrLeaseLost) {
		t.Errorf("after release: %v", err)
	}
	b := mustAcquire(t, kv, "b")
	select {
	case <-a.Lost():
		t.Error("a released lease counts as lost")
	default:
	}
	if err := b.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A holder that cannot reach the server stops before another may begin.
func TestLeaseIsLostWithTheServer(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	kv := leases(t, server.JetStream(t), leaseTTL)
	a := mustAcquire(t, kv, "a")
	server.Pause()
	<-a.Lost()
	if err := a.Check(); !errors.Is(err, stream.ErrLeaseLost) {
		t.Errorf("lost: %v", err)
	}
	server.Continue()
	b := mustAcquire(t, kv, "b")
	if err := a.Release(t.Context()); err != nil {
		t.Errorf("release of a lost lease: %v", err)
	}
	if err := b.Check(); err != nil {
		t.Errorf("the release of a lost lease took b's: %v", err)
	}
	// A restart that is shorter than the lease costs nothing.
	if err := b.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	kv = leases(t, server.JetStream(t), time.Minute)
	c := mustAcquire(t, kv, "c")
	server.Kill()
	server.Start()
	if err := c.Check(); err != nil {
		t.Errorf("after a restart of the server: %v", err)
	}
}

func TestLeaseTakenAway(t *testing.T) {
	kv := leases(t, testenv.NATS(t, testenv.NATSOptions{}).JetStream(t), leaseTTL)
	a := mustAcquire(t, kv, "a")
	if _, err := kv.Put(t.Context(), wire.ArchivistLease, []byte("another's")); err != nil {
		t.Fatal(err)
	}
	<-a.Lost()
	if err := a.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if e, err := kv.Get(t.Context(), wire.ArchivistLease); err == nil && string(e.Value()) != "another's" {
		t.Errorf("the lease of another is now %q", e.Value())
	}
}

func TestLeaseNeedsTTL(t *testing.T) {
	kv := leases(t, testenv.NATS(t, testenv.NATSOptions{}).JetStream(t), 0)
	if _, err := acquire(t.Context(), kv, "a"); err == nil {
		t.Fatal("acquired a lease that never expires")
	}
}

// A process that is stopped for longer than the lease, and then continues, notices before it writes: the messages of the next holder are
// the last.
func TestLeaseSurvivesNoPause(t *testing.T) {
	if url := os.Getenv(leaseServer); url != "" {
		pausedHolder(t, url)
		return
	}
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	kv := leases(t, js, leaseTTL)
	child := exec.Command(os.Args[0], "-test.run=^TestLeaseSurvivesNoPause$", "-test.v")
	child.Env = append(os.Environ(), leaseServer+"="+server.URL())
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill() }()
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "stops now") {
	}
	testenv.Await(t, "the holder is stopped", func() bool { return stopped(t, child.Process.Pid) })
	l := mustAcquire(t, kv, "parent") // waits until the child's has expired
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil || !strings.Contains(string(rest), "noticed") {
		t.Fatalf("the stopped holder: %v\n%s", err, rest)
	}
	if err := l.Check(); err != nil {
		t.Errorf("the next holder lost its lease: %v", err)
	}
}

// pausedHolder acquires the lease, stops itself, and must find it lost when it continues.
func pausedHolder(t *testing.T, url string) {
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), leaseBucket)
	if err != nil {
		t.Fatal(err)
	}
	l := mustAcquire(t, kv, "child")
	fmt.Println("stops now")
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for parked := false; !parked; { // the signal may take this thread a moment later
		e, err := kv.Get(t.Context(), wire.ArchivistLease)
		parked = err == nil && strings.Contains(string(e.Value()), "parent")
		if lost := l.Check() != nil; parked && !lost {
			t.Fatal("another holds the lease and it is not noticed")
		}
	}
	fmt.Println("noticed")
}

func stopped(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "T")
}
