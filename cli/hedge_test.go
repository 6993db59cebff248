// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/sender"
)

// mute is a server that accepts, takes everything and never says a word.
func mute(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}()
	return l.Addr().String()
}

// TestSilentServerBesideGateway: with the flags as they are, a server that never
// answers keeps nothing from the gateway beside it. The receipt may take an hour:
// without a second try this test would not end.
func TestSilentServerBesideGateway(t *testing.T) {
	s := newStation(t)
	for framing, port := range map[string]int{"until-close": s.camera, "length-prefixed": s.spectra} {
		t.Run(framing, func(t *testing.T) {
			dir, report := t.TempDir(), filepath.Join(t.TempDir(), "report.jsonl")
			for i := range 8 {
				data := make([]byte, 10_000)
				_, _ = rand.Read(data)
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("frame-", i)), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, stderr, code := runProgram(t, "substorm", "send", "--to", mute(t)+","+testenv.Loopback(port), "--framing", framing,
				"--receipt-timeout", "1h", "--report", report, dir)
			if code != 0 {
				t.Fatalf("exit code %d\n%s", code, stderr)
			}
			received := map[string]bool{}
			for _, r := range receipts(t, report) {
				if r.Outcome != sender.Received || r.Server != testenv.Loopback(port) {
					t.Errorf("report %+v", r)
				}
				received[r.SHA256] = true
			}
			if len(received) != 8 {
				t.Errorf("%d of 8 received", len(received))
			}
			t.Log(stderr)
		})
	}
}
