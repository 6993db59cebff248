// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

// If one object lies in several places, the place holds that manifests name last: a
// compacted pack, else a gateway's, else the object of its own.
const (
	rankObject = iota
	rankPack
	rankCompacted
)

// line is what one place in the bucket says of an object.
type line struct {
	Rank int `json:"rank"`
	// StoredAt is the store's time, in nanoseconds since 1970.
	StoredAt int64 `json:"storedAt"`
	wire.Record
}

// List identifies a list of manifests: an instrument's day.
type List struct {
	Instrument string
	Day        wire.Day
}

// bufferSpace is how much of what was found is held until it is written, in bytes.
const bufferSpace = 16 << 20

// Found is what a scan found.
type Found struct {
	cfg Config
	dir string

	mu       sync.Mutex
	lists    map[List][]byte // what is not written yet
	buffered int
	// superseded are the objects that newer versions replace, by instrument.
	superseded map[string]map[manifest.IDHash]bool
}

func newFound(cfg Config) (*Found, error) {
	dir, err := os.MkdirTemp(cfg.ScratchDir, "substorm-bucket-*")
	if err != nil {
		return nil, fmt.Errorf("scratch folder: %w", err)
	}
	return &Found{cfg: cfg, dir: dir, lists: map[List][]byte{}, superseded: map[string]map[manifest.IDHash]bool{}}, nil
}

// Close removes the scratch files.
func (f *Found) Close() error { return os.RemoveAll(f.dir) }

// Lists returns the instruments' days for which anything was found, in order.
func (f *Found) Lists() []List {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Keys(f.lists), List.Compare)
}

// Compare orders lists by instrument and then by day.
func (l List) Compare(other List) int {
	return cmp.Or(cmp.Compare(l.Instrument, other.Instrument), cmp.Compare(l.Day, other.Day))
}

// day notes a list that may have changes alone.
func (f *Found) day(instrument string, day wire.Day) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := List{instrument, day}
	if _, known := f.lists[l]; !known {
		f.lists[l] = nil
	}
}

func (f *Found) add(instrument string, l line, wanted bool) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.Supersedes != "" && l.Supersedes != l.ID {
		if f.superseded[instrument] == nil {
			f.superseded[instrument] = map[manifest.IDHash]bool{}
		}
		f.superseded[instrument][manifest.HashID(l.Supersedes)] = true
	}
	if !wanted {
		return nil
	}
	of := List{instrument, wire.DayOf(l.ReceivedAt)}
	f.lists[of] = append(append(f.lists[of], text...), '\n')
	if f.buffered += len(text) + 1; f.buffered < bufferSpace {
		return nil
	}
	return f.write()
}

func (f *Found) flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.write()
}

// write empties the buffers. The mutex is held.
func (f *Found) write() error {
	for of, text := range f.lists {
		if len(text) == 0 {
			continue
		}
		file, err := os.OpenFile(f.file(of), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("scratch: %w", err)
		}
		_, err = file.Write(text)
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("scratch: %w", err)
		}
		f.lists[of] = nil
	}
	f.buffered = 0
	return nil
}

func (f *Found) file(of List) string { return filepath.Join(f.dir, of.Instrument+"."+string(of.Day)) }

// open opens what was found of a list; nil if there is only a change.
func (f *Found) open(of List) (*os.File, error) {
	file, err := os.Open(f.file(of))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("scratch: %w", err)
	}
	return file, nil
}

// eachLine calls f for each line of a scratch file, with the offset at which it begins.
func eachLine(file io.Reader, f func(offset int64, l line) error) error {
	lines := bufio.NewReaderSize(file, 64<<10)
	for offset := int64(0); ; {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("scratch: %w", err)
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("scratch: %w", err)
		}
		if err := f(offset, l); err != nil {
			return err
		}
		offset += int64(len(text))
	}
}

// lineAt reads the line that begins at an offset.
func lineAt(file io.ReaderAt, offset, length int64) (line, error) {
	text := make([]byte, length)
	var l line
	if _, err := file.ReadAt(text, offset); err != nil {
		return l, fmt.Errorf("scratch: %w", err)
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("scratch: %w", err)
	}
	return l, nil
}
