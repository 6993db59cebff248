// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Ports that tests get: below the range that outgoing connections take theirs
// from, so that a server that was stopped finds its port free again. Gateways
// receive on the first of them; the last are for an edge.
const (
	firstPort, lastPort         = 10_000, 29_999
	firstEdgePort, lastEdgePort = 30_001, 32_767
)

// FreePort returns a TCP port that is free now, and that no other test of this
// machine is given until this one has ended.
func FreePort(t testing.TB) int {
	t.Helper()
	return freePort(t, firstPort, lastPort)
}

// FreeEdgePort returns such a port beyond those that gateways receive on.
func FreeEdgePort(t testing.TB) int {
	t.Helper()
	return freePort(t, firstEdgePort, lastEdgePort)
}

// FreePorts returns the first of so many adjacent ports, each as FreePort's.
func FreePorts(t testing.TB, count int) (first int) {
	t.Helper()
	for range 100 {
		first = firstPort + rand.IntN(lastPort-firstPort-count+2)
		all, err := takePorts(first, count)
		if err != nil {
			t.Fatal(err)
		}
		if all != nil {
			t.Cleanup(func() { closeAll(all) })
			return first
		}
	}
	t.Fatalf("no %d adjacent ports are free between %d and %d", count, firstPort, lastPort)
	return 0
}

// takePorts returns the locks that hold adjacent ports for us; nil if another process has one of them.
func takePorts(first, count int) (all []*os.File, err error) {
	for port := first; port < first+count; port++ {
		taken, err := takePort(port)
		if err != nil || taken == nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, taken)
	}
	return all, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func freePort(t testing.TB, first, last int) int {
	t.Helper()
	port, taken, err := somePort(first, last)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	return port
}

// somePort returns a port that is free, and what holds it for us.
func somePort(first, last int) (int, *os.File, error) {
	for range 100 {
		port := first + rand.IntN(last-first+1)
		taken, err := takePort(port)
		if err != nil {
			return 0, nil, err
		}
		if taken != nil {
			return port, taken, nil
		}
	}
	return 0, nil, fmt.Errorf("no free port between %d and %d", first, last)
}

// takePort returns the lock that holds a port for us until it is closed or this process ends; nil if another process has it.
func takePort(port int) (*os.File, error) {
	dir := filepath.Join(os.TempDir(), "substorm-test-ports")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("take port %d: %w", port, err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("take port %d: %w", port, err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, lock.Close()
	}
	if err == nil {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			return lock, l.Close()
		}
	}
	lock.Close()
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, nil
	}
	return nil, fmt.Errorf("take port %d: %w", port, err)
}
