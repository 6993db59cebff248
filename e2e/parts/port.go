// SPDX-License-Identifier: Apache-2.0

package parts

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

// FreePort returns a TCP port that is free now, and that no other test of this
// machine is given until this one has ended. It lies below the range that
// outgoing connections take theirs from, so that a server that was stopped finds
// its port free again.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10_000 + rand.IntN(20_000)
		taken, err := takePort(port)
		if err != nil {
			t.Fatal(err)
		}
		if taken == nil {
			continue
		}
		t.Cleanup(func() { taken.Close() })
		return port
	}
	t.Fatal("no free port between 10000 and 30000")
	return 0
}

// takePort returns what holds a port for us until it is closed or this process
// ends; nil where somebody else has it.
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
