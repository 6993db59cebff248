// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

// dripping greets each client byte by byte, and never ends the greeting.
func dripping(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for err == nil {
					_, err = io.WriteString(conn, "a")
					time.Sleep(10 * time.Millisecond)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// A daemon whose greeting comes byte by byte ends a run, whichever way that goes.
func TestSlowGreeting(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("rsync"); err != nil && os.Getenv("CI") == "" {
		t.Skip("install rsync")
	}
	address := dripping(t)
	m, err := rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: address, Module: "data"}},
		Scratch: t.TempDir(), Greeting: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"a push": func() error { _, err := m.Has(t.Context(), []string{"a.txt"}); return err },
		"a pull": func() error {
			return rsync.Source{Mover: m}.Walk(t.Context(), func(tree.Folder) error { return nil })
		},
	} {
		var p *push.Problem
		err := do()
		if !errors.As(err, &p) || p.Reason != wire.MirrorReasonUnreachable || p.Answered || !strings.Contains(err.Error(), address) ||
			!strings.Contains(err.Error(), "did not agree on a protocol within 500ms") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
