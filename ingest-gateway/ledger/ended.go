// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/durable"
	"github.com/substorm/substorm/internal/wire"
)

// Files in Config.Dir: <incarnation>.counters while an incarnation lives, and until the next one has read it; and what
// incarnations that ended received.
const (
	countersExtension = ".counters"
	endedFile         = "ended.json"
)

// keepEnded is how long after its end a day stays among what ended incarnations received: longer than it takes to close
// it, when it is in the bucket.
const keepEnded = 10 * 24 * time.Hour

// ended is what incarnations on this volume received, by instrument and day, that count there no more. It is on the disk
// before the counters are removed.
type ended struct {
	path, own string // own is the incarnation that runs

	mu   sync.Mutex
	days map[dayKey]map[string]wire.Totals // by incarnation
	// lost are incarnations whose counters could not be read in full, and when that was found.
	lost map[string]time.Time
	// ends are the keys of what ended incarnations counted that may still be in the spool, as text, at most maxEnds.
	ends []string
	// epoch of the Site's ledger that has all of it; empty if none is known to.
	epoch string
}

type endedFormat struct {
	Format int                  `json:"format"`
	Epoch  string               `json:"epoch,omitempty"`
	Lost   map[string]time.Time `json:"lost,omitempty"`
	Ends   []string             `json:"ends,omitempty"`
	Days   []endedDay           `json:"days"`
}

type endedDay struct {
	Instrument   string                 `json:"instrument"`
	Day          wire.Day               `json:"day"`
	Incarnations map[string]wire.Totals `json:"incarnations"`
}

// openEnded reads what ended incarnations received, adds those that ended since, and removes their counters. A file that
// is damaged (a power cut can do that) counts as far as it can be read.
func openEnded(dir, own string, log *slog.Logger) (*ended, error) {
	e := &ended{path: filepath.Join(dir, endedFile), own: own, days: map[dayKey]map[string]wire.Totals{}, lost: map[string]time.Time{}}
	if err := errors.Join(durable.Remove(e.path+durable.PartSuffix), e.load(log)); err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*"+countersExtension))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if err := e.end(path, log); err != nil {
			return nil, err
		}
	}
	if err := e.save(); err != nil {
		return nil, err
	}
	for _, path := range paths {
		if err := durable.Remove(path); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *ended) load(log *slog.Logger) error {
	data, err := os.ReadFile(e.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var f endedFormat
	if err := json.Unmarshal(data, &f); err != nil {
		log.Error("cannot read the totals of earlier incarnations from the volume: the Site's ledger has them, unless it is lost", "file", e.path, "error", err)
		return nil
	}
	if err := wire.CheckFormat(f.Format); err != nil {
		return fmt.Errorf("%s: %w", e.path, err)
	}
	e.epoch, e.ends = f.Epoch, f.Ends
	maps.Copy(e.lost, f.Lost)
	for _, d := range f.Days {
		e.days[dayKey{d.Instrument, d.Day}] = d.Incarnations
	}
	return nil
}

// end adds what an incarnation received that left its counters.
func (e *ended) end(path string, log *slog.Logger) error {
	incarnation := strings.TrimSuffix(filepath.Base(path), countersExtension)
	counted, err := readCounters(path)
	if err != nil && !errors.Is(err, errNotCounters) {
		return err
	}
	if !counted.complete {
		log.Warn("counts of an earlier incarnation may be lost: the machine has restarted since, or the file is damaged", "incarnation", incarnation, "error", err)
		e.lost[incarnation] = time.Now().UTC()
	}
	for k, t := range finalTotals(counted.slots, counted.causes) {
		t.Incomplete = !counted.complete
		e.set(k, incarnation, t)
	}
	e.keep(counted.ends)
	e.epoch = ""
	return nil
}

// set replaces what an incarnation received of a day: its slot has all of that, see take.
func (e *ended) set(k dayKey, incarnation string, t wire.Totals) {
	if isZero(t) && !t.Incomplete {
		return
	}
	if e.days[k] == nil {
		e.days[k] = map[string]wire.Totals{}
	}
	e.days[k][incarnation] = t
}

// put replaces what the own incarnation received on days that it does not count in for now, or any more, and
// adds the keys of what it counted that may still be in the spool. Written says that the Site's ledger has the totals.
func (e *ended) put(of map[dayKey]wire.Totals, ends []endKey, written bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keep(ends)
	if len(of) > 0 && !written {
		e.epoch = ""
	}
	for k, t := range of {
		e.set(k, e.own, t)
	}
	return e.save()
}

// keep notes the keys of what an incarnation counted that may still be in the spool.
func (e *ended) keep(ends []endKey) {
	for _, k := range ends {
		if k != (endKey{}) && !slices.Contains(e.ends, k.String()) {
			e.ends = append(e.ends, k.String())
		}
	}
	e.ends = e.ends[max(0, len(e.ends)-maxEnds):]
}

// hasCounted says whether an ended incarnation counted what a key names, which may still be in the spool.
func (e *ended) hasCounted(k endKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.ends, k.String())
}

// forget drops the key of what left the spool. It leaves the file when that is next written.
func (e *ended) forget(k endKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(e.ends, k.String()); i >= 0 {
		e.ends = slices.Delete(e.ends, i, i+1)
	}
}

// totals returns what was received of a day, by incarnation.
func (e *ended) totals(k dayKey) map[string]wire.Totals {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.days[k])
}

// known returns all days, in the order of instruments and days.
func (e *ended) known() []dayKey {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.SortedFunc(maps.Keys(e.days), byDay)
}

func byDay(a, b dayKey) int {
	if c := strings.Compare(a.instrument, b.instrument); c != 0 {
		return c
	}
	return strings.Compare(string(a.day), string(b.day))
}

// isLost says whether counters of an incarnation on this volume were lost.
func (e *ended) isLost(incarnation string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, lost := e.lost[incarnation]
	return lost
}

// written says which epoch of the Site's ledger has all of it.
func (e *ended) written() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch
}

// setWritten notes that an epoch of the Site's ledger has all of it, and forgets days that are long over. Those of the
// own incarnation stay: it may count in them again.
func (e *ended) setWritten(epoch string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.epoch = epoch
	now := time.Now()
	oldest := wire.DayOf(now.Add(-keepEnded))
	maps.DeleteFunc(e.days, func(k dayKey, of map[string]wire.Totals) bool {
		maps.DeleteFunc(of, func(incarnation string, _ wire.Totals) bool { return incarnation != e.own && k.day < oldest })
		return len(of) == 0
	})
	maps.DeleteFunc(e.lost, func(_ string, at time.Time) bool { return now.Sub(at) > keepEnded })
	return e.save()
}

func (e *ended) save() error {
	f := endedFormat{Format: wire.Format, Epoch: e.epoch, Lost: e.lost, Ends: e.ends}
	for _, k := range slices.SortedFunc(maps.Keys(e.days), byDay) {
		f.Days = append(f.Days, endedDay{k.instrument, k.day, e.days[k]})
	}
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return durable.Replace(e.path, data, 0o640)
}
