// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
)

// notes are the notifications to a service manager.
type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) read(conn *net.UnixConn) {
	buffer := make([]byte, 4<<10)
	for {
		size, err := conn.Read(buffer)
		if err != nil {
			return
		}
		n.mu.Lock()
		n.all = append(n.all, strings.Split(string(buffer[:size]), "\n")...)
		n.mu.Unlock()
	}
}

// after says whether a note came, after another one.
func (n *notes) after(first, wanted string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := first == ""
	for _, note := range n.all {
		if seen && note == wanted {
			return nil
		}
		seen = seen || note == first
	}
	return fmt.Errorf("told %q", n.all)
}

// TestServiceManager: systemd is notified when the Site is ready, that it is healthy, and that it stops.
func TestServiceManager(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "site.yaml"), fmt.Appendf(nil, site, testenv.FreePort(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var told notes
	go told.read(conn)
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "4000000")
	s := testenv.StartStandalone(t, dir)
	eventually(t, "it is ready", func() error { return told.after("", "READY=1") })
	eventually(t, "it is healthy", func() error { return told.after("READY=1", "WATCHDOG=1") })
	s.Stop()
	eventually(t, "it stops", func() error { return told.after("WATCHDOG=1", "STOPPING=1") })
}
