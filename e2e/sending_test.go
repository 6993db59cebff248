// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// sendDatagrams begins to send n different lines.
func (l *lab) sendDatagrams(t testing.TB, to string, n int) *background {
	t.Helper()
	return l.start(t, l.substorm, "send", "--udp", "--lines", "--rate", "2500", "--to", to, writeLines(t, n))
}

// probeLine is what forwards sends.
const probeLine = "2026-03-17 04:44:59.000 is it forwarded?"

// forwards sends one datagram after the other until one arrives, and returns how many it sent: a node may not forward a port yet that is
// new, or whose pod is, though the Instrument is Ready, and does not report what it drops.
func (l *lab) forwards(t testing.TB, to, instrument string) (sent uint64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "probe.txt")
	if err := os.WriteFile(path, []byte(probeLine+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	already := l.ledger(t, instrument).Received.Datagrams
	eventually(t, func() error {
		sent++
		_, err := l.output(l.substorm, "send", "--udp", "--lines", "--to", to, path)
		for range 6 { // gateways report every two seconds
			if l.ledger(t, instrument).Received.Datagrams > already {
				return nil
			}
			time.Sleep(500 * time.Millisecond)
		}
		return errors.Join(fmt.Errorf("none of %d datagrams to %s arrived", sent, to), err)
	})
	return sent
}

// sendingLines sends lines, all different, until the returned function is called, which returns how many it sent.
func (l *lab) sendingLines(t testing.TB, to string) (end func() int) {
	t.Helper()
	const batch = 500
	dir := t.TempDir()
	return l.repeating(t, func(n int) error {
		path := filepath.Join(dir, "lines.txt")
		if err := os.WriteFile(path, lines(n*batch, batch), 0o600); err != nil {
			return err
		}
		_, err := l.output(l.substorm, "send", "--udp", "--lines", "--rate", fmt.Sprint(batch), "--to", to, path)
		return err
	}, batch)
}

// sendingObjects sends objects, four a second, until the returned function is called, which returns how many it sent.
func (l *lab) sendingObjects(t testing.TB, to, report string) (end func() int) {
	t.Helper()
	const batch = 20
	dir := t.TempDir()
	return l.repeating(t, func(n int) error {
		folder := filepath.Join(dir, fmt.Sprint(n))
		if err := makeObjects(folder, batch, 16<<10); err != nil {
			return err
		}
		_, err := l.output(l.substorm, "send", "--quiet", "--to", to, "--rate", "4", "--give-up-after", "5m", "--report", report, folder)
		return err
	}, batch)
}

// repeating sends batch after batch until the returned function is called, which returns how much was sent. So a test tries what it is about
// while something is on its way, however long that takes.
func (l *lab) repeating(t testing.TB, send func(n int) error, batch int) (end func() int) {
	quit, done := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		defer func() { done <- n * batch }()
		for {
			if err := send(n); err != nil {
				t.Errorf("batch %d: %v", n, err)
				return
			}
			n++
			select {
			case <-quit:
				return
			default:
			}
		}
	}()
	end = sync.OnceValue(func() int { close(quit); return <-done })
	t.Cleanup(func() { end() })
	return end
}

// writeObjects makes n files of random bytes.
func writeObjects(t testing.TB, n, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := makeObjects(dir, n, size); err != nil {
		t.Fatal(err)
	}
	return dir
}

func makeObjects(dir string, n, size int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	data := make([]byte, size)
	for i := range n {
		_, _ = rand.Read(data)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("frame-%04d.bin", i)), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeLines makes a file of n lines, each different.
func writeLines(t testing.TB, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lines.txt")
	if err := os.WriteFile(path, lines(0, n), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// lines are n lines from a number on.
func lines(from, n int) []byte {
	var text bytes.Buffer
	for i := range n {
		fmt.Fprintf(&text, "2026-03-17 04:45:00.000 %06d 20714.31 -112.84 46893.05\n", from+i)
	}
	return text.Bytes()
}
