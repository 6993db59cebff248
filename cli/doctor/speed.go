// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/progress"
)

const (
	// smallWrites of smallSize bytes are like small objects in the spool, and one of largeSize like a picture.
	smallWrites = 50
	smallSize   = 4 << 10
	largeSize   = 8 << 20
	// longest is after how long no further write begins.
	longest = 15 * time.Second
)

// speed is how long writes took until they were synced.
type speed struct {
	// small are in ascending order; at least one.
	small []time.Duration
	// large is zero if there was no time for it.
	large time.Duration
}

func (s speed) median() time.Duration { return s.small[len(s.small)/2] }

func (s speed) String() string {
	text := fmt.Sprintf("4 KiB are kept after %s (median of %d; worst %s)", short(s.median()), len(s.small), short(s.small[len(s.small)-1]))
	if s.large > 0 {
		text += fmt.Sprintf(", 8 MiB after %s", short(s.large))
	}
	return text
}

// measure writes into a folder, and removes what it wrote. A disk that hangs keeps it no longer than ctx: then a file may stay.
func measure(ctx context.Context, dir string, shown *progress.Progress) (speed, error) {
	type result struct {
		speed speed
		err   error
	}
	done := make(chan result, 1)
	go func() {
		s, err := write(ctx, dir, shown)
		done <- result{s, err}
	}()
	select {
	case r := <-done:
		return r.speed, r.err
	case <-ctx.Done():
		return speed{}, ctx.Err()
	}
}

func write(ctx context.Context, dir string, shown *progress.Progress) (s speed, err error) {
	file, err := os.CreateTemp(dir, ".substorm-doctor-*")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	began := time.Now()
	for i := range smallWrites {
		if i > 0 && (time.Since(began) > longest || ctx.Err() != nil) {
			break
		}
		shown.Set(int64(i), smallWrites+1, "measuring how long the disk takes to sync: %d of %d", i, smallWrites+1)
		took, err := keep(file, smallSize)
		if err != nil {
			return s, err
		}
		s.small = append(s.small, took)
	}
	slices.Sort(s.small)
	if time.Since(began) > longest {
		return s, ctx.Err()
	}
	s.large, err = keep(file, largeSize)
	return s, errors.Join(err, ctx.Err())
}

// keep writes so many bytes at the end of a file and syncs them.
func keep(file *os.File, size int) (time.Duration, error) {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 7) // no file system leaves it out, as it may with zeros
	}
	began := time.Now()
	if _, err := file.Write(data); err != nil {
		return 0, err
	}
	if err := unix.Fdatasync(int(file.Fd())); err != nil {
		return 0, fmt.Errorf("sync %s: %w", file.Name(), err)
	}
	return time.Since(began), nil
}
