// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Files in Config.Dir: <incarnation>.counters and <incarnation>.checkpoint while the incarnation lives and until it is
// recounted, and the position at which the last one that stopped cleanly left off.
const (
	countersExtension   = ".counters"
	checkpointExtension = ".checkpoint"
	positionFile        = "position.json"
)

// checkpoint is what an incarnation announced without doubt.
type checkpoint struct {
	Format int `json:"format"`
	// From is a position before which no publication from First on can lie.
	From  position `json:"from"`
	First uint64   `json:"first"`
	// Settled counts all publications before First.
	Settled []settledDay `json:"settled"`

	// Of an incarnation that ended, noted by the first one after it: what waited in the spool of what it received, and
	// which of that it had announced all the same.
	SpoolSeen bool                `json:"spoolSeen,omitempty"`
	Spooled   map[string]Spooled  `json:"spooled,omitempty"`
	Overlap   map[string]overlaps `json:"overlap,omitempty"`
}

type settledDay struct {
	Instrument string   `json:"instrument"`
	Day        wire.Day `json:"day"`
	announced
}

func (l *Ledger) saveCheckpoint() error {
	p := &l.publications
	p.mu.Lock()
	now := p.epochs[p.current]
	p.mu.Unlock()
	cp := checkpoint{Format: wire.Format, From: now.from, First: now.first}
	l.mu.RLock()
	for _, c := range l.cells {
		c.mu.Lock()
		if c.settled != (announced{}) {
			cp.Settled = append(cp.Settled, settledDay{c.key.instrument, c.day, c.settled})
		}
		c.mu.Unlock()
	}
	l.mu.RUnlock()
	return writeJSON(l.path+checkpointExtension, cp)
}

// previous is an incarnation that did not stop cleanly.
type previous struct {
	incarnation string
	path        string // without extension
	slots       []*slot
	causes      []wire.Cause
	checkpoint  checkpoint
	countedAt   time.Time
	// passes is how often it was recounted.
	passes int
}

// findPrevious reads what previous incarnations left. Files that are damaged (a power cut can do that) count as far as
// they can be read.
func findPrevious(dir string) ([]*previous, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+checkpointExtension))
	if err != nil {
		return nil, err
	}
	var found []*previous
	for _, path := range paths {
		p := &previous{path: strings.TrimSuffix(path, checkpointExtension)}
		p.incarnation = filepath.Base(p.path)
		if err := readJSON(path, &p.checkpoint); err != nil {
			return nil, err
		}
		if p.checkpoint.Format != 0 { // 0: damaged, so everything is counted from the beginning
			if err := wire.CheckFormat(p.checkpoint.Format); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
		p.slots, p.causes, err = readCounters(p.path + countersExtension)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, errNotCounters) {
			return nil, err
		}
		if p.countedAt, err = countedAt(p.path); err != nil {
			return nil, err
		}
		found = append(found, p)
	}
	return found, nil
}

// removeFiles forgets an incarnation, path being that of its files without extension. Counters without a checkpoint mean
// nothing; a checkpoint without counters would be recounted.
func removeFiles(path string) error {
	return errors.Join(os.Remove(path+checkpointExtension), removeIfThere(path+countersExtension))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// removeOrphans removes what a kill in the middle of removeFiles or writeJSON left.
func removeOrphans(dir string) error {
	var errs []error
	counters, _ := filepath.Glob(filepath.Join(dir, "*"+countersExtension))
	for _, path := range counters {
		if _, err := os.Stat(strings.TrimSuffix(path, countersExtension) + checkpointExtension); errors.Is(err, os.ErrNotExist) {
			errs = append(errs, os.Remove(path))
		}
	}
	parts, _ := filepath.Glob(filepath.Join(dir, "*.part"))
	for _, path := range parts {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}

// startPosition returns a position before which no message of a new incarnation can lie.
func startPosition(dir string, before []*previous) (position, error) {
	var from position
	if err := readJSON(filepath.Join(dir, positionFile), &from); err != nil {
		return position{}, err
	}
	for _, p := range before {
		from.Observations = from.Observations.later(p.checkpoint.From.Observations)
		from.Notices = from.Notices.later(p.checkpoint.From.Notices)
	}
	return from, nil
}

// readJSON leaves v as it is where there is no file, or none that can be read as JSON.
func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !json.Valid(data) {
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w: %w", path, wire.ErrMalformed, err)
	}
	return nil
}

// writeJSON replaces a file by one that is on the disk.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	part := path + ".part"
	if err := writeSynced(part, data); err != nil {
		return err
	}
	if err := os.Rename(part, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
