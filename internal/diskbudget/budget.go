// SPDX-License-Identifier: Apache-2.0

//go:build linux

package diskbudget

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lookEvery is how often the file system is asked what it has left, at most.
	lookEvery = 100 * time.Millisecond
	// measureEvery is how often the data folder is measured; between two times what the file system lost or got back is taken for ours. A step
	// that begins by that guess, and much that it got back, has the folder measured at once, for no more than a part of the time.
	measureEvery = 10 * time.Minute
	measureShare = 10
	// shrunkShare is which part of the budget the file system may get back, by whomever, before the folder is measured too.
	shrunkShare = 100
	mebibyte    = 1 << 20
)

// Usage is what a data folder takes, in bytes of the disk's blocks.
type Usage struct {
	// Objects are those of the archive, Streams those of NATS, Spool what gateways hold on their volumes.
	Objects, Streams, Spool, Other int64
}

// Total of all parts.
func (u Usage) Total() int64 { return u.Objects + u.Streams + u.Spool + u.Other }

// Measure adds up what a data folder has. Files that are removed meanwhile may or may not count. Errors: the file system's, and ctx's.
func Measure(ctx context.Context, dir string) (Usage, error) {
	var u Usage
	parts := map[string]*int64{"objects": &u.Objects, "nats": &u.Streams, "volumes": &u.Spool}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				top, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, dir), string(filepath.Separator)), string(filepath.Separator))
				part := parts[top]
				if part == nil {
					part = &u.Other
				}
				if stat, ok := info.Sys().(*syscall.Stat_t); ok {
					*part += stat.Blocks * 512 // stat(2): whatever the file system's blocks are
				}
			}
		}
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil
		}
		return err
	})
	if err != nil {
		return Usage{}, fmt.Errorf("measure the data folder: %w", err)
	}
	return u, nil
}

// Space is what the file system of a folder has left for this user, and what it can hold, in bytes.
func Space(dir string) (free, size int64, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, 0, fmt.Errorf("file system of %s: %w", dir, err)
	}
	return int64(stat.Bavail) * stat.Bsize, int64(stat.Blocks) * stat.Bsize, nil
}

// State is what is known of a budget.
type State struct {
	Usage
	Sizes
	Decision
	// Measured: the data folder was measured; before that only what the file system has left is known.
	Measured bool
	// Reproducible are bytes of objects that can be made again, also of those that may not be removed yet.
	Reproducible int64
}

// Budget is the budget of one data folder. It may be used from many goroutines. A nil Budget is unlimited.
type Budget struct {
	dir      string
	declared int64
	warn     func(error)

	mu sync.Mutex
	is State
	// looked is when the file system was last asked, measured when the folder was last measured, and took how long that took; freeThen
	// is what the file system had left then.
	looked, measured time.Time
	took             time.Duration
	freeThen         int64
	// doubt: a step began by a guess.
	doubt chan struct{}
}

// New returns the budget of a data folder, which Run keeps. Declared is how many bytes it may have; 0: what the disk has, without the
// reserve. Warn hears what cannot be measured.
func New(dir string, declared int64, warn func(error)) (*Budget, error) {
	b := &Budget{dir: dir, declared: declared, warn: warn, doubt: make(chan struct{}, 1), is: State{Sizes: Sizes{Removable: Unknown}}}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b, b.refresh(time.Now())
}

// Run measures until ctx ends.
func (b *Budget) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := b.measure(ctx); err != nil && ctx.Err() == nil {
			b.warn(err)
		}
		b.mu.Lock()
		pause := measureShare * b.took
		b.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(min(pause, measureEvery)):
		}
		b.await(ctx)
	}
}

// await returns when the folder is to be measured.
func (b *Budget) await(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	due := time.After(measureEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-due:
			return
		case <-b.doubt:
			return
		case <-tick.C:
			b.State()
		}
	}
}

func (b *Budget) measure(ctx context.Context) error {
	began := time.Now()
	usage, free, err := b.measureStill(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.is.Usage, b.is.Measured, b.freeThen, b.measured, b.took = usage, true, free, time.Now(), time.Since(began)
	select {
	case <-b.doubt:
	default:
	}
	return b.refresh(time.Now())
}

// measureStill measures until the file system has about the same left before and after, some times at most: what is written meanwhile would count
// twice.
func (b *Budget) measureStill(ctx context.Context) (usage Usage, before int64, err error) {
	const tries, about = 3, 1 << 20
	for range tries {
		if before, _, err = Space(b.dir); err != nil {
			return Usage{}, 0, err
		}
		if usage, err = Measure(ctx, b.dir); err != nil {
			return Usage{}, 0, err
		}
		after, _, err := Space(b.dir)
		if err != nil || max(before-after, after-before) < about {
			return usage, before, err
		}
	}
	return usage, before, nil
}

// refresh queries the file system and plans again. The caller holds mu.
func (b *Budget) refresh(now time.Time) error {
	free, size, err := Space(b.dir)
	if err != nil {
		return err
	}
	b.looked = now
	b.is.Free, b.is.Size, b.is.Declared, b.is.Used = free, size, b.declared, 0
	if b.is.Measured {
		b.is.Used = max(b.is.Total()+b.freeThen-free, 0)
	}
	before := b.is.Decision
	b.is.Decision = Plan(b.is.Sizes, before)
	begins := b.is.Remove > 0 && before.Remove == 0 || b.is.Messages && !before.Messages || b.is.NoReceipts && !before.NoReceipts
	// Space that others free looks as if we had freed it, and so much more would be received than the budget has.
	shrunk := b.is.Measured && free-b.freeThen > max(b.is.Budget()/shrunkShare, mebibyte)
	if begins || shrunk {
		select {
		case b.doubt <- struct{}{}:
		default:
		}
	}
	return nil
}

// State is what is known now. A nil Budget knows nothing.
func (b *Budget) State() State {
	if b == nil {
		return State{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); now.Sub(b.looked) >= lookEvery {
		if err := b.refresh(now); err != nil {
			b.looked = now
			b.warn(err)
		}
	}
	return b.is
}

// StreamBytes returns StreamBytes for the data folder's file system.
func (b *Budget) StreamBytes() int64 { return StreamBytes(b.State().Size) }

// Scarce says whether nothing may be begun that takes space before it frees some.
func (b *Budget) Scarce() bool { return b != nil && b.State().Full(messagesFrom) }

// NoReceipts says whether nothing more may be received.
func (b *Budget) NoReceipts() bool { return b.State().NoReceipts }

// Archived notes what the archivist may remove now of what can be made again, and how much of that there is.
func (b *Budget) Archived(removable, reproducible int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.is.Removable, b.is.Reproducible = removable, reproducible
	if err := b.refresh(time.Now()); err != nil {
		b.warn(err)
	}
}
