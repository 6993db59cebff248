// SPDX-License-Identifier: Apache-2.0

// Package highwater keeps a clock that ran ahead from removing what is old only by that clock. A computer without a network has no
// second clock to ask; its data folder has seen how time passed. The mark is the newest time that is believed: it is persisted,
// never goes back, and follows the clock at twice the speed at most by which time really passes while the program runs.
//
// So after a clock was set a year ahead the mark needs a year to believe it, and after a computer was off for a week nothing
// expires for another week, in which it receives no more than what the week without power has left free.
package highwater

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/internal/boottime"
	"github.com/substorm/substorm/internal/durable"
)

const (
	// speed is how many seconds the mark may advance in one second.
	speed = 2
	// keepEvery is how often the mark is written: what a kill takes of it, it makes up in the same time.
	keepEvery = time.Minute
	// fileName is in the data folder.
	fileName = "clock"
	// formatVersion of that file.
	formatVersion = 1
)

// Mark is the mark of one data folder. It may be used from many goroutines.
type Mark struct {
	file string

	mu sync.Mutex
	is stored
	// seen is when, by a clock that does not jump, the mark was last advanced.
	seen time.Duration
}

// stored is the content of the file, as JSON.
type stored struct {
	Version int `json:"version"`
	// Mark is the newest time that is believed.
	Mark time.Time `json:"mark"`
	// Boot names the start of the computer that SinceBoot, in nanoseconds, is counted from: when the mark was written.
	Boot      string        `json:"boot,omitempty"`
	SinceBoot time.Duration `json:"sinceBoot,omitempty"`
}

// Open reads the mark of a data folder. If there is none yet, the mark is when the newest of the files near the folder's top was
// written, and now in a folder without files. Errors: the file system's, and a file that cannot be read as a mark.
func Open(dir string, now time.Time) (*Mark, error) {
	m := &Mark{file: filepath.Join(dir, fileName), seen: boottime.Now()}
	record, err := read(m.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m.is = stored{Mark: newest(dir, now)}
	case err != nil:
		return nil, err
	default:
		m.is = record
		if boot := bootID(); boot != "" && record.Boot == boot && record.SinceBoot <= m.seen { // the computer ran on, and no time was lost
			m.seen = record.SinceBoot
		}
	}
	m.advance(now, boottime.Now())
	return m, m.keep()
}

// Read returns the mark of a data folder that another process may have; false if the folder has none. Errors: as Open's.
func Read(dir string) (time.Time, bool, error) {
	record, err := read(filepath.Join(dir, fileName))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, false, nil
	}
	return record.Mark, err == nil, err
}

func read(file string) (stored, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return stored{}, err
	}
	var record stored
	if err := json.Unmarshal(text, &record); err != nil || record.Version < 1 || record.Mark.IsZero() {
		return stored{}, fmt.Errorf("cannot read %s, which holds the newest time that this data folder has seen (%q): "+
			"check that the computer's clock is right and remove the file", file, text)
	}
	if record.Version > formatVersion {
		return stored{}, fmt.Errorf("%s was written by a newer substorm (version %d, this one knows %d): start that version", file, record.Version, formatVersion)
	}
	return record, nil
}

// Limit returns a time that our clock gave just now, or the mark where that is earlier: what is removed for its age goes by it.
func (m *Mark) Limit(now time.Time) time.Time {
	mark := m.advance(now, boottime.Now())
	if now.After(mark) {
		return mark
	}
	return now
}

// advance has the mark follow the clock, and returns it.
func (m *Mark) advance(now time.Time, since time.Duration) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if passed := since - m.seen; passed > 0 {
		reach := m.is.Mark.Add(speed * passed)
		if now.Before(reach) {
			reach = now
		}
		if reach.After(m.is.Mark) {
			m.is.Mark = reach.UTC().Round(0)
		}
		m.seen = since
	}
	return m.is.Mark
}

// Run keeps the mark until ctx ends, and once more then. The error is the last that kept it from being written.
func (m *Mark) Run(ctx context.Context, warn func(error)) error {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			m.advance(time.Now(), boottime.Now())
			return m.keep()
		case <-tick.C:
			m.advance(time.Now(), boottime.Now())
			if err := m.keep(); err != nil {
				warn(err) // the old one holds: it is only earlier
			}
		}
	}
}

func (m *Mark) keep() error {
	m.mu.Lock()
	record := m.is
	record.Version, record.Boot, record.SinceBoot = formatVersion, bootID(), m.seen
	m.mu.Unlock()
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if err := durable.Replace(m.file, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("keep the newest time that the data folder has seen: %w", err)
	}
	return nil
}

// bootID returns the kernel's ID of the current boot; empty if it is unknown.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// depth and maxFiles bound the search for the newest file: the log of the API and the streams are written all the time.
const (
	depth    = 3
	maxFiles = 10_000
)

// newest returns when the newest file near the top of a folder was written; now if there is no such file. The files at the top itself do
// not count: a program writes them as it starts, by the clock that is to be judged.
func newest(dir string, now time.Time) time.Time {
	var found time.Time
	seen := 0
	walk := func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it went meanwhile
		}
		if seen++; seen > maxFiles {
			return fs.SkipAll
		}
		below := strings.Count(strings.TrimPrefix(path, dir), string(filepath.Separator))
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() && below > 1 && info.ModTime().After(found) {
			found = info.ModTime()
		}
		if d.IsDir() && below >= depth {
			return fs.SkipDir
		}
		return nil
	}
	_ = filepath.WalkDir(dir, walk) // walk returns no error
	if found.IsZero() {
		return now.UTC().Round(0)
	}
	return found.UTC()
}

var embedded atomic.Pointer[Mark]

// Embed names the mark that Limit of this process goes by; nil: none. A process has one data folder, and programs in it are configured by
// flags: so it is named here, as stream.Embed names the NATS server.
func Embed(m *Mark) { embedded.Store(m) }

// Limit is Mark.Limit of the mark of this process; without one it returns now.
func Limit(now time.Time) time.Time {
	if m := embedded.Load(); m != nil {
		return m.Limit(now)
	}
	return now
}
