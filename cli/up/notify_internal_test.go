// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// listenForNotes makes the socket of a service manager.
func listenForNotes(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return conn
}

// sent are the notes that wait in the socket.
func sent(t *testing.T, conn *net.UnixConn) (all []string) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 4<<10)
	for {
		var n int
		asked := raw.Control(func(fd uintptr) { n, _, err = unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT) })
		switch {
		case errors.Is(err, unix.EAGAIN):
			return all
		case asked != nil || err != nil:
			t.Fatal(errors.Join(asked, err))
		}
		all = append(all, string(buffer[:n]))
	}
}

// TestWatchdog: the service manager hears of a healthy process only, and gives it more time for as long as it has not started.
func TestWatchdog(t *testing.T) {
	conn := listenForNotes(t)
	t.Setenv("WATCHDOG_USEC", "1000") // so that it is asked again at once
	m := &manager{warn: func(err error) { t.Error(err) }}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	looks, broken := 0, 0
	healthy := func(context.Context) error {
		looks++
		notes := strings.Join(sent(t, conn), "|")
		switch looks {
		case 1, 2:
			if notes != "" {
				t.Errorf("before look %d it was told %q", looks, notes)
			}
			return errors.New("nobody answers")
		case 4:
			if notes != "WATCHDOG=1\nEXTEND_TIMEOUT_USEC=1000" {
				t.Errorf("while it starts it was told %q", notes)
			}
			m.ready("it is\nready")
			if notes := strings.Join(sent(t, conn), "|"); notes != "READY=1\nSTATUS=it is ready" {
				t.Errorf("when it was ready it was told %q", notes)
			}
		case 5:
			if notes != "WATCHDOG=1" {
				t.Errorf("after its start it was told %q", notes)
			}
			end()
		}
		return nil
	}
	if err := m.watch(ctx, healthy, func(error) { broken++ }); err != nil {
		t.Error(err)
	}
	if looks != 5 || broken != 2 {
		t.Errorf("it looked %d times, of which %d found something broken, want 5 and 2", looks, broken)
	}
}

// TestNoServiceManager: without one nothing is asked, and nothing is wrong.
func TestNoServiceManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "")
	m := &manager{warn: func(err error) { t.Error(err) }}
	m.ready("ready")
	m.stopping()
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := m.watch(ctx, func(context.Context) error { t.Error("it is asked"); return nil }, func(error) {}); err != nil {
		t.Error(err)
	}
	t.Setenv("WATCHDOG_USEC", "soon")
	if err := m.watch(ctx, nil, nil); err == nil || !strings.Contains(err.Error(), "WATCHDOG_USEC") {
		t.Errorf("WATCHDOG_USEC=soon: %v", err)
	}
	// A socket that is gone is said once.
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	said := 0
	m.warn = func(error) { said++ }
	m.ready("ready")
	m.stopping()
	if said != 1 {
		t.Errorf("a socket that is gone is said %d times", said)
	}
}
