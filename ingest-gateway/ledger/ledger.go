// SPDX-License-Identifier: Apache-2.0

// Package ledger counts what one incarnation of a gateway received, per instrument and day, and keeps the counts
// exact across a kill.
//
// Counters live in a mapped file, so that they outlive the process: an object is counted before its receipt is written.
// The archivist counts from the manifests what became of the objects, see wire.LedgerEntry; if a gateway was killed
// between an object's announcement and its count, wire.Reconcile says which it was.
//
// The next incarnation makes the totals of one that ended final, and keeps them on the volume (see ended), so that the
// Site's ledger can be written again if it was lost.
package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Config says whose ledger it is.
type Config struct {
	// Dir on the gateway's volume holds the counters that survive a kill.
	Dir                        string
	Site, Gateway, Incarnation string
	// Gather is how long the Site's ledger may lack what datagrams alone changed, so that one sync serves all of them; 0: as long as all else.
	// A kill takes nothing of it: the counters have it.
	Gather time.Duration
	// Logger logs the final totals of previous incarnations; default none.
	Logger *slog.Logger
	// Durations that are 0 have the constants of these names.
	writeEvery, keepEntries time.Duration
}

// Ledger holds the totals of one incarnation. Its counting methods are cheap, never wait for disk or network, and may be
// called from any number of goroutines. The instant given to them is the object's or datagram's receivedAt: its UTC day
// is the day that is counted.
type Ledger struct {
	cfg  Config
	log  *slog.Logger
	path string // of the counters, without extension

	mu       sync.RWMutex
	cells    map[cellKey]*cell
	counters *counterFile
	leaving  sync.Mutex // of the keys of what leaves the spool

	// ended is what earlier incarnations received, and this one on days that are no longer in memory.
	ended *ended

	listeners listeners

	writer writer
}

// cellKey is an instrument's day: days since the Unix epoch.
type cellKey struct {
	instrument string
	day        int64
}

// dayKey is an instrument's day as the Site's ledger spells it.
type dayKey struct {
	instrument string
	day        wire.Day
}

func (k dayKey) entry(gateway string) string {
	return wire.LedgerKey(k.instrument, k.day, wire.StepReceived, gateway)
}

const (
	secondsPerDay = 24 * 60 * 60
	// keepCells is how long after its day's end a cell that is no longer counted in stays in
	// memory.
	keepCells = 48 * time.Hour
)

// cell counts one instrument's day in its slot.
type cell struct {
	dayKey
	slot *slot
	// touched is when the cell was last counted in, in seconds; received when an object or datagram last came, in
	// nanoseconds since the Unix epoch.
	touched, received atomic.Int64
	// dirty: it is to be written; datagrams: when it is due, see Config.Gather.
	dirty, datagrams atomic.Bool

	mu sync.Mutex // of what the slot says of received objects
}

// Open begins the ledger of a new incarnation. It needs no network.
func Open(cfg Config) (*Ledger, error) {
	if cfg.Site == "" || cfg.Gateway == "" || cfg.Incarnation == "" {
		return nil, errors.New("ledger: site, gateway and incarnation must be named")
	}
	if err := os.MkdirAll(cfg.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	cfg.writeEvery, cfg.keepEntries = cmp.Or(cfg.writeEvery, writeEvery), cmp.Or(cfg.keepEntries, keepEntries)
	l := &Ledger{
		cfg: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		path:  filepath.Join(cfg.Dir, cfg.Incarnation+countersExtension),
		cells: map[cellKey]*cell{}, listeners: listeners{of: map[listenerKey]*atomic.Int64{}},
	}
	var err error
	if l.ended, err = openEnded(cfg.Dir, cfg.Incarnation, l.log); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if l.counters, err = createCounters(l.path); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return l, nil
}

// cell returns the cell that counts an instrument at an instant.
func (l *Ledger) cell(instrument string, at time.Time) *cell {
	unix := at.Unix()
	day := unix / secondsPerDay
	if unix%secondsPerDay < 0 {
		day--
	}
	key := cellKey{instrument, day}
	l.mu.RLock()
	c := l.cells[key]
	l.mu.RUnlock()
	if c == nil {
		c = l.addCell(key)
	}
	c.touched.Store(time.Now().Unix())
	return c
}

func (l *Ledger) addCell(key cellKey) *cell {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.cells[key]; c != nil {
		return c
	}
	c := &cell{dayKey: dayKey{key.instrument, wire.DayOf(time.Unix(key.day*secondsPerDay, 0))}}
	c.touched.Store(time.Now().Unix())
	var err error
	if c.slot, err = l.counters.take(key.instrument, c.day, l.ended.totals(c.dayKey)[l.cfg.Incarnation]); err != nil {
		l.log.Error("counts of an instrument would not survive a kill", "instrument", key.instrument, "error", err)
		c.slot = new(slot)
	}
	l.cells[key] = c
	return c
}

// cause returns the index of a cause among the counters.
func (l *Ledger) cause(cause wire.Cause) counter {
	l.mu.RLock()
	for i, known := range l.counters.causes {
		if known == cause {
			l.mu.RUnlock()
			return counter(i)
		}
	}
	l.mu.RUnlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return counter(l.counters.cause(cause))
}

// ObjectBegun counts an object whose first byte arrived. Each ends in one call of Received or Unfinished.
func (l *Ledger) ObjectBegun(instrument string, at time.Time) {
	l.cell(instrument, at).slot.add(objectsBegun, 1)
}

// ObjectBytesRead counts bytes of objects as they are read from the network.
func (l *Ledger) ObjectBytesRead(instrument string, at time.Time, n int) {
	l.cell(instrument, at).slot.add(objectBytesRead, uint64(n))
}

// Received counts an object that may be receipted: stored and announced, or in the spool. Call it before the receipt is
// written.
func (l *Ledger) Received(instrument string, at time.Time, size int64, digest wire.Digest) {
	c := l.cell(instrument, at)
	c.change(func(r *received) {
		r.objects++
		r.objectBytes += uint64(size)
		r.digest = r.digest.Plus(digest)
	})
	c.received.Store(at.UnixNano())
}

func (c *cell) change(f func(*received)) {
	c.mu.Lock()
	c.slot.change(f)
	c.mu.Unlock()
	c.dirty.Store(true)
}

// Acknowledged counts a received object whose receipt could be written.
func (l *Ledger) Acknowledged(instrument string, at time.Time) {
	c := l.cell(instrument, at)
	c.slot.add(objectsAcknowledged, 1)
	c.dirty.Store(true)
}

// Unfinished counts an object that will get no receipt, and those of its bytes that were read. If it is unknown whether
// it is in the archive all the same, cause says so.
func (l *Ledger) Unfinished(instrument string, at time.Time, cause wire.Cause, size int64) {
	index := l.cause(cause)
	c := l.cell(instrument, at)
	c.slot.add(unfinishedFirst+index, 1)
	c.slot.add(unfinishedBytes, uint64(size))
	c.dirty.Store(true)
}

// DatagramsReceived counts the datagrams of a message that the stream of observations holds, and the bytes of their
// payloads.
func (l *Ledger) DatagramsReceived(instrument string, at time.Time, n, size int) {
	c := l.cell(instrument, at)
	c.slot.add(datagramsReceived, uint64(n))
	c.slot.add(datagramBytesReceived, uint64(size))
	c.datagrams.Store(true)
}

// DatagramsDropped counts datagrams that were read and dropped, or (wire.CauseKernelBuffer) never read.
func (l *Ledger) DatagramsDropped(instrument string, at time.Time, cause wire.Cause, n int) {
	index := l.cause(cause)
	c := l.cell(instrument, at)
	c.slot.add(droppedFirst+index, uint64(n))
	c.datagrams.Store(true)
}

// Totals returns what this incarnation received so far on a day.
func (l *Ledger) Totals(instrument string, day wire.Day) wire.Totals {
	start, err := day.Start()
	if err != nil {
		return wire.Totals{}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if c := l.cells[cellKey{instrument, start.Unix() / secondsPerDay}]; c != nil {
		return c.totals(l.counters.causes)
	}
	return l.ended.totals(dayKey{instrument, day})[l.cfg.Incarnation]
}

func (c *cell) totals(causes []wire.Cause) wire.Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slot.totals(causes)
}

// LastReceived returns when this incarnation last received an object of an instrument or read a datagram; zero for never.
func (l *Ledger) LastReceived(instrument string) time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	last := int64(0)
	today := time.Now().Unix() / secondsPerDay
	for day := today + 1; day >= today-1; day-- {
		if c := l.cells[cellKey{instrument, day}]; c != nil {
			last = max(last, c.received.Load())
		}
	}
	if last == 0 {
		return time.Time{}
	}
	return time.Unix(0, last)
}

// DatagramCounter counts the datagrams of one instrument and day without looking for them each time. It may be used on
// that day and for a day after.
type DatagramCounter struct {
	ledger *Ledger
	cell   *cell
	// last is when a datagram was last read at the listener.
	last *atomic.Int64
}

// Datagrams returns the counter of an instrument for the UTC day that holds an instant, for datagrams of one of its
// listeners.
func (l *Ledger) Datagrams(instrument, listener string, at time.Time) DatagramCounter {
	return DatagramCounter{l, l.cell(instrument, at), l.listeners.mark(instrument, listener)}
}

// Read counts datagrams that were read from a socket. Each of them ends as received or dropped.
func (d DatagramCounter) Read(n int, now time.Time) {
	d.cell.slot.add(datagramsRead, uint64(n))
	d.cell.touched.Store(now.Unix())
	d.cell.received.Store(now.UnixNano())
	d.last.Store(now.UnixNano())
}

// Dropped counts as DatagramsDropped does.
func (d DatagramCounter) Dropped(cause wire.Cause, n int) {
	d.cell.slot.add(droppedFirst+d.ledger.cause(cause), uint64(n))
	d.cell.datagrams.Store(true)
}
