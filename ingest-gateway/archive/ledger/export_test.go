// SPDX-License-Identifier: Apache-2.0

package ledger

import "time"

// Hasten makes writes, checkpoints and recounts as frequent as a test needs them.
func (c Config) Hasten() Config {
	c.writeEvery, c.checkpointEvery, c.confirmAfter = 20*time.Millisecond, time.Millisecond, time.Millisecond
	return c
}

// Prune drops what may be dropped from memory at an instant.
func (l *Ledger) Prune(now time.Time) { l.prune(now) }

// Cells is how many instruments' days are in memory.
func (l *Ledger) Cells() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.cells)
}
