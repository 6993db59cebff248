// SPDX-License-Identifier: Apache-2.0

//go:build linux

package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// linkNear is the address of this process on a Link, linkFar the address of its far end.
	linkNear, linkFar = "10.77.0.1", "10.77.0.2"
	linkMTU           = 1500
	// isolated says to a process that it is alone in its network namespace.
	isolated = "SUBSTORM_TEST_NETNS"
)

// Isolate runs this program again in a network namespace of its own, with a loopback device
// alone, and ends with its exit code; in there it returns. It is what main calls first: a Link
// is part of the namespace. If there is no privilege for that, the error says so.
func Isolate() error {
	if os.Getenv(isolated) != "" {
		return runIP("link", "set", "lo", "up")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), isolated+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread() // the death signal comes when the thread ends that started the child
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		os.Exit(ended.ExitCode())
	}
	if err != nil {
		return fmt.Errorf("this needs the privilege to make network namespaces (run it as root): %w", err)
	}
	os.Exit(0)
	return nil
}

// Link is a long way between this process' network namespace and a far one: packets take
// half of RoundTrip each way, and no more than Rate bytes a second go either way. So TCP sees
// the delay, which it does not through a proxy.
type Link struct {
	roundTrip time.Duration
	holder    *exec.Cmd
	near, far *os.File
	// to and from the far end.
	to, from wayOver
}

// LinkOptions say how long and wide a Link is.
type LinkOptions struct {
	RoundTrip time.Duration
	// Rate in bytes a second each way; 0: as fast as this machine passes packets on.
	Rate int64
}

// NewLink makes a link, which ends with the test; one test has one at a time. It skips the test without the privilege for that. Programs:
// ip, nsenter.
func NewLink(t testing.TB, o LinkOptions) *Link {
	t.Helper()
	l := &Link{roundTrip: o.RoundTrip}
	t.Cleanup(l.close)
	if err := l.open(); err != nil {
		t.Skipf("this needs the privilege to make network namespaces and TUN devices, and the programs ip and nsenter: %v", err)
	}
	l.to, l.from = wayOver{delay: o.RoundTrip / 2, rate: o.Rate}, wayOver{delay: o.RoundTrip / 2, rate: o.Rate}
	l.to.start(l.near, l.far)
	l.from.start(l.far, l.near)
	return l
}

func (l *Link) open() error {
	l.holder = exec.Command("sleep", "infinity")
	l.holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() { // a death signal comes when the thread ends that started the child
		runtime.LockOSThread()
		err := l.holder.Start()
		started <- err
		if err == nil {
			_ = l.holder.Wait()
		}
		runtime.UnlockOSThread()
	}()
	if err := <-started; err != nil {
		l.holder = nil
		return err
	}
	var err error
	if l.near, err = openTUN("near"); err != nil {
		return err
	}
	if l.far, err = l.openFar(); err != nil {
		return err
	}
	mtu := strconv.Itoa(linkMTU)
	return errors.Join(
		runIP("address", "add", linkNear, "peer", linkFar, "dev", "near"), runIP("link", "set", "near", "mtu", mtu, "up"),
		l.run("ip", "link", "set", "lo", "up"), l.run("ip", "address", "add", linkFar, "peer", linkNear, "dev", "far"),
		l.run("ip", "link", "set", "far", "mtu", mtu, "up"))
}

func runIP(arguments ...string) error {
	if out, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(arguments, " "), err, out)
	}
	return nil
}

func (l *Link) run(name string, arguments ...string) error {
	if out, err := l.Far(context.Background(), name, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, out)
	}
	return nil
}

// openFar makes a device in the far namespace.
func (l *Link) openFar() (file *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends, as it is in the other namespace
		var ns *os.File
		if ns, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", l.holder.Process.Pid)); err != nil {
			return
		}
		defer ns.Close()
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
			file, err = openTUN("far")
		}
	}()
	<-done
	return file, err
}

func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a TUN device: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Far is a command at the far end, where this process has Near as its address.
func (l *Link) Far(ctx context.Context, name string, arguments ...string) *exec.Cmd {
	inside := []string{fmt.Sprintf("--net=/proc/%d/ns/net", l.holder.Process.Pid), "--", name}
	return exec.CommandContext(ctx, "nsenter", append(inside, arguments...)...)
}

// Near is the address of what listens in this process' namespace at all addresses.
func (l *Link) Near() string { return linkNear }

// Bytes that went over the link, both ways, headers of IP and TCP included.
func (l *Link) Bytes() int64 { return l.to.bytes.Load() + l.from.bytes.Load() }

// Dropped are the packets for which there was no space: Rate was exceeded for too long.
func (l *Link) Dropped() int64 { return l.to.dropped.Load() + l.from.dropped.Load() }

func (l *Link) close() {
	for _, device := range []*os.File{l.near, l.far} {
		if device != nil {
			_ = device.Close() // with its file goes the device
		}
	}
	l.to.ended.Wait()
	l.from.ended.Wait()
	if l.holder != nil {
		_ = l.holder.Process.Kill() // with it goes the namespace
	}
}

// wayOver takes packets one way.
type wayOver struct {
	delay          time.Duration
	rate           int64
	bytes, dropped atomic.Int64
	ended          sync.WaitGroup
}

type packet struct {
	due  time.Time
	data []byte
}

// waiting packets at most: 110 ms of 1 Gb/s, and as much for a queue.
const waitingPackets = 20_000

func (w *wayOver) start(in, out *os.File) {
	queue := make(chan packet, waitingPackets)
	pool := sync.Pool{New: func() any { return make([]byte, linkMTU) }}
	w.ended.Go(func() {
		defer close(queue)
		var free time.Time // when the wire is
		for {
			data := pool.Get().([]byte)
			n, err := in.Read(data[:linkMTU])
			if err != nil {
				return
			}
			now := time.Now()
			if free.Before(now) {
				free = now
			}
			if w.rate > 0 {
				free = free.Add(time.Duration(int64(n) * int64(time.Second) / w.rate))
			}
			select {
			case queue <- packet{free.Add(w.delay), data[:n]}:
				w.bytes.Add(int64(n))
			default:
				w.dropped.Add(1)
			}
		}
	})
	w.ended.Go(func() {
		for p := range queue {
			time.Sleep(time.Until(p.due))
			_, _ = out.Write(p.data)   // a device that is closed takes none: the test ends
			pool.Put(p.data[:linkMTU]) //nolint:staticcheck // a slice's head is small beside its bytes
		}
	})
}
