// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/internal/boottime"
)

const (
	// clockSlack is what the file may be behind at a kill: it is written at most
	// once in that time.
	clockSlack = 10 * time.Millisecond
	// clockTrust is how far the last receive time may be ahead of the clock: receive times then
	// continue from it. A clock that was set back by more was wrong before, and is followed: else
	// all receive times would be one instant until it is reached again.
	clockTrust = time.Minute
)

// clock yields receive times. Unless it is set right by more than clockTrust it never steps back,
// and never yields the same nanosecond twice: gateway, incarnation and receive time name an object.
type clock struct {
	last atomic.Int64
	// file holds the last receive time, and saved is what it holds; nil for none.
	file  *os.File
	saved atomic.Int64
	steps steps
}

// now returns the gateway's time, or, if that has stepped back a little, the time after the last
// one returned; and by how much the clock was set lately.
func (c *clock) now() (t time.Time, step time.Duration) {
	wall := time.Now().UnixNano()
	return c.after(wall), c.steps.see(time.Duration(wall), boottime.Now())
}

func (c *clock) after(now int64) time.Time {
	for {
		last := c.last.Load()
		t := max(now, last+1)
		if last-now > int64(clockTrust) {
			t = now
		}
		if c.last.CompareAndSwap(last, t) {
			c.save(t)
			return time.Unix(0, t).UTC()
		}
	}
}

// save writes to the file, once in a while. Whether it reaches the disk
// before a power cut is of no matter: then the clock was off for longer.
func (c *clock) save(t int64) {
	saved := c.saved.Load()
	if c.file == nil || t >= saved && t-saved < int64(clockSlack) || !c.saved.CompareAndSwap(saved, t) {
		return
	}
	_, _ = c.file.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(t)), 0)
}

// open continues where the last incarnation ended, which it reads from a file.
func (c *clock) open(path string, now time.Time, log *slog.Logger) error {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clock: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	if c.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640); err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	if len(b) != 8 {
		return nil
	}
	last := time.Unix(0, int64(binary.LittleEndian.Uint64(b))).UTC()
	switch ahead := last.Sub(now); {
	case ahead > clockTrust:
		log.Error("the clock was set back: objects received before seem to be from the future",
			"last", last, "now", now.UTC(), "steppedBack", ahead)
	case ahead > -clockSlack:
		if ahead > 0 {
			log.Warn("the clock has stepped back: receive times go on from the last one", "last", last, "now", now.UTC())
		}
		c.last.Store(last.Add(clockSlack).UnixNano())
	}
	return nil
}
