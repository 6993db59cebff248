// SPDX-License-Identifier: Apache-2.0

// Package ledger counts what one life (incarnation) of a gateway received, stored and announced, per instrument and
// day, and keeps the counts exact across a kill.
//
// Counters live in a mapped file, so that they outlive the process. Between what they say and what the Site's streams
// hold there may be a gap at a kill: messages that were stored and never counted. The next incarnation closes it by
// counting the messages of the last one again, from a checkpoint on (see checkpoint and recount).
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
	// Logger hears what is final of previous incarnations; default none.
	Logger *slog.Logger
	// Spooled is what waits in the spool of what earlier incarnations received: by incarnation and instrument. Nil where
	// there is no spool; otherwise call AdoptedAll.
	Spooled map[string]map[string]Spooled
	// Waiting is how many objects wait in the spool; nil where there is none.
	Waiting func() int64

	// The constants of those names where they are 0.
	writeEvery, checkpointEvery, confirmAfter time.Duration
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

	publications publications
	writer       writer
	// previous guards what is known of earlier incarnations.
	previous sync.Mutex
}

// cellKey is an instrument's day: days since the Unix epoch.
type cellKey struct {
	instrument string
	day        int64
}

const (
	secondsPerDay = 24 * 60 * 60
	// keepCells is how long after its day's end a cell that nobody counts in stays in memory.
	keepCells = 48 * time.Hour
)

// cell counts one instrument's day. Counts are in the slot; what does not fit there is under mu.
type cell struct {
	key  cellKey
	day  wire.Day
	slot *slot
	// touched is when the cell was last counted in, in seconds; received when an object or datagram last came, in
	// nanoseconds since the Unix epoch.
	touched, received atomic.Int64
	dirty             atomic.Bool

	mu                           sync.Mutex
	receivedDigest, storedDigest wire.Digest
	settled                      announced    // see publications
	open                         [2]announced // by epoch
}

// Open begins the ledger of a new incarnation. It needs no network.
func Open(cfg Config) (*Ledger, error) {
	if cfg.Site == "" || cfg.Gateway == "" || cfg.Incarnation == "" {
		return nil, errors.New("ledger: site, gateway and incarnation must be named")
	}
	if err := os.MkdirAll(cfg.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	cfg.writeEvery = cmp.Or(cfg.writeEvery, writeEvery)
	cfg.checkpointEvery = cmp.Or(cfg.checkpointEvery, checkpointEvery)
	cfg.confirmAfter = cmp.Or(cfg.confirmAfter, confirmAfter)
	l := &Ledger{
		cfg: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		path:  filepath.Join(cfg.Dir, cfg.Incarnation),
		cells: map[cellKey]*cell{},
	}
	err := removeOrphans(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if l.writer.previous, err = findPrevious(cfg.Dir); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	l.writer.adopted.Store(cfg.Spooled == nil)
	if err := l.noteSpooled(); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	from, err := startPosition(cfg.Dir, l.writer.previous)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	l.publications.begin(from)
	// The checkpoint comes first: counters without one could not be recounted.
	if err := l.saveCheckpoint(); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if l.counters, err = createCounters(l.path + countersExtension); err != nil {
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
	c := &cell{key: key, day: wire.DayOf(time.Unix(key.day*secondsPerDay, 0))}
	c.touched.Store(time.Now().Unix())
	var err error
	if c.slot, err = l.counters.take(key.instrument, c.day); err != nil {
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

// Received counts an object that may be receipted: stored, and its notice in the stream. Call it before the receipt is
// written.
func (l *Ledger) Received(instrument string, at time.Time, size int64, digest wire.Digest) {
	c := l.cell(instrument, at)
	c.mu.Lock()
	c.slot.add(objectsReceived, 1)
	c.slot.add(objectBytesReceived, uint64(size))
	c.receivedDigest = c.receivedDigest.Plus(digest)
	c.mu.Unlock()
	c.received.Store(at.UnixNano())
	c.dirty.Store(true)
}

// Acknowledged counts a received object whose receipt could be written.
func (l *Ledger) Acknowledged(instrument string, at time.Time) {
	c := l.cell(instrument, at)
	c.slot.add(objectsAcknowledged, 1)
	c.dirty.Store(true)
}

// Stored counts an object that the store took.
func (l *Ledger) Stored(instrument string, at time.Time, size int64, digest wire.Digest) {
	c := l.cell(instrument, at)
	c.mu.Lock()
	c.slot.add(objectsStored, 1)
	c.slot.add(objectBytesStored, uint64(size))
	c.storedDigest = c.storedDigest.Plus(digest)
	c.mu.Unlock()
	c.dirty.Store(true)
}

// Unfinished counts an object that will get no receipt, and those of its bytes that were read.
func (l *Ledger) Unfinished(instrument string, at time.Time, cause wire.Cause, size int64) {
	index := l.cause(cause)
	c := l.cell(instrument, at)
	c.mu.Lock()
	c.slot.add(unfinishedFirst+index, 1)
	c.slot.add(unfinishedBytes, uint64(size))
	c.mu.Unlock()
	c.dirty.Store(true)
}

// DatagramsDropped counts datagrams that were read and dropped, or (wire.CauseKernelBuffer) never read.
func (l *Ledger) DatagramsDropped(instrument string, at time.Time, cause wire.Cause, n int) {
	index := l.cause(cause)
	c := l.cell(instrument, at)
	c.slot.add(droppedFirst+index, uint64(n))
	c.dirty.Store(true)
}

// Totals returns what this incarnation counted so far of a step on a day.
func (l *Ledger) Totals(instrument string, day wire.Day, step wire.Step) wire.Totals {
	start, err := day.Start()
	if err != nil {
		return wire.Totals{}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	c := l.cells[cellKey{instrument, start.Unix() / secondsPerDay}]
	if c == nil {
		return wire.Totals{}
	}
	return c.totals(step, l.counters.causes)
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
}

// Datagrams returns the counter of an instrument for the UTC day that holds an instant.
func (l *Ledger) Datagrams(instrument string, at time.Time) DatagramCounter {
	return DatagramCounter{l, l.cell(instrument, at)}
}

// Read counts datagrams that were read from a socket, and the bytes of their payloads. Each of them ends as announced
// or dropped.
func (d DatagramCounter) Read(n, size int, now time.Time) {
	d.cell.slot.add(datagramsRead, uint64(n))
	d.cell.slot.add(datagramBytesRead, uint64(size))
	d.cell.touched.Store(now.Unix())
	d.cell.received.Store(now.UnixNano())
}

// Dropped counts as DatagramsDropped does.
func (d DatagramCounter) Dropped(cause wire.Cause, n int) {
	d.cell.slot.add(droppedFirst+d.ledger.cause(cause), uint64(n))
	d.cell.dirty.Store(true)
}
