// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/cli/up"
)

// maxBehind is how far the clock may be behind a file: those of some file systems have whole seconds.
const maxBehind = 2 * time.Second

// setClock says how a clock is set.
const setClock = "set it (timedatectl set-time, a GPS receiver, NTP) before anything is received: what is received is kept under the day of its receipt"

// clock compares the time with what is known to be over: when the program was built, and when the newest file of the data folder was
// written. Adjtimex asks the kernel whether its clock is synchronised.
func clock(now, built, newest time.Time, file string, adjtimex func(*unix.Timex) (int, error)) Check {
	const check = "clock"
	current := now.UTC().Format(time.RFC3339)
	switch {
	case up.CheckClock(now) != nil:
		return failed(check, setClock, "it says %s: it was never set", current)
	case now.Before(built):
		return failed(check, setClock, "it says %s, and this program is of %s", current, built.UTC().Format(time.RFC3339))
	case now.Before(newest.Add(-maxBehind)):
		return failed(check, setClock, "it says %s, and %s was written at %s: it goes backward", current, file, newest.UTC().Format(time.RFC3339))
	}
	var kernel unix.Timex
	if _, err := adjtimex(&kernel); err != nil {
		return warning(check, "run substorm doctor outside the service's sandbox", "it says %s; whether it is synchronised the kernel does not say: %v", current, err)
	}
	if kernel.Status&unix.STA_UNSYNC != 0 {
		return warning(check, "start chrony, systemd-timesyncd (timedatectl set-ntp true) or gpsd with chrony, and wait until it is", "it says %s, and nobody synchronises it", current)
	}
	return fine(check, "it says %s, synchronised to %s", current, short(time.Duration(kernel.Maxerror)*time.Microsecond))
}

// builtAt is the time of the commit that the program was built from; zero if it is not recorded.
func builtAt() time.Time {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return time.Time{}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			at, _ := time.Parse(time.RFC3339, s.Value) // zero where it is none
			return at
		}
	}
	return time.Time{}
}

const (
	// depth and maxFiles bound the search for the newest file: the lock and the log of the API are written at each start.
	depth    = 3
	maxFiles = 10_000
)

// newestFile is the one of a data folder that was written last, of those near its top, and when.
func newestFile(dir string) (newest time.Time, file string) {
	seen := 0
	walk := func(path string, d fs.DirEntry, err error) error {
		if err != nil { // it is not there, or was removed meanwhile, or belongs to another user
			return nil
		}
		if seen++; seen > maxFiles {
			return fs.SkipAll
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() && info.ModTime().After(newest) {
			newest, file = info.ModTime(), path
		}
		if d.IsDir() && strings.Count(strings.TrimPrefix(path, dir), string(filepath.Separator)) >= depth {
			return fs.SkipDir
		}
		return nil
	}
	_ = filepath.WalkDir(dir, walk) // walk returns no error
	return newest, file
}
