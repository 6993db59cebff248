// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"os"
	"testing"
	"time"
)

// Hasten makes writes as frequent as a test needs them, and forgets at once what is forgotten some time.
func (c Config) Hasten() Config {
	c.writeEvery, c.keepEntries = 20*time.Millisecond, time.Nanosecond
	return c
}

// Prune drops what may be dropped from memory at an instant.
func (l *Ledger) Prune(now time.Time) error { return l.prune(now) }

// Cells is how many instruments' days are in memory.
func (l *Ledger) Cells() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.cells)
}

// SetBoot makes a file of counters one of another boot of the machine.
func SetBoot(t *testing.T, path, boot string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(append([]byte(boot), make([]byte, bootSize-len(boot))...), bootAt); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
