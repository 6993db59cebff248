// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/wire"
)

// The counters of an incarnation live in a file that is mapped into memory: what was counted before a SIGKILL is in the
// page cache and so in the file. It is laid out for this machine's byte order and read by nobody else:
//
//	head     8 bytes magic, 4 bytes number of causes, then causes of 32 bytes each, in the order of their counters
//	slot...  instrument (length and up to 63 bytes), day (10 bytes, 6 spare), counters of 8 bytes
//
// A slot whose instrument has length 0 is free. The file grows by chunks of slots, whose room on the disk is reserved:
// writing to a mapped page for which there is no room would end the process.
const (
	magic      = "SBSTLDG2"
	headSize   = 64 << 10 // as large as a page may be
	causeSize  = 32
	maxCauses  = 24
	causesAt   = 16
	nameSize   = 64
	daySize    = 16
	countersAt = nameSize + daySize
	slotSize   = countersAt + 8*counterCount
	chunkSlots = 1024 // 9 x 64 KiB
	chunkSize  = chunkSlots * slotSize
)

// counter is the index of a counter in a slot.
type counter int

const (
	datagramsRead counter = iota
	datagramBytesRead
	datagramsAnnounced
	datagramBytesAnnounced
	objectsBegun
	objectBytesRead
	objectsReceived
	objectBytesReceived
	objectsAcknowledged
	objectsStored
	objectBytesStored
	objectsAnnounced
	objectBytesAnnounced
	unfinishedBytes
	objectsAdopted  // of objectsReceived, those that were not begun here
	droppedFirst    // by cause
	unfinishedFirst = droppedFirst + maxCauses
	counterCount    = int(unfinishedFirst) + maxCauses
)

// slot is one instrument's day in the mapped file.
type slot struct {
	name     [nameSize]byte
	day      [daySize]byte
	counters [counterCount]atomic.Uint64
}

func (s *slot) get(c counter) uint64 { return s.counters[c].Load() }
func (s *slot) add(c counter, n uint64) {
	s.counters[c].Add(n)
}

// key returns what the slot counts, and false for one that is free or damaged.
func (s *slot) key() (instrument string, day wire.Day, ok bool) {
	n := int(s.name[0])
	if n == 0 || n >= nameSize {
		return "", "", false
	}
	day, err := wire.ParseDay(string(s.day[:10]))
	return string(s.name[1 : 1+n]), day, err == nil
}

// counterFile is a mapped file. Its methods are not for concurrent use; the slots are.
type counterFile struct {
	file   *os.File
	head   []byte
	chunks int
	free   []*slot
	causes []wire.Cause
}

var errNotCounters = errors.New("no counters of a gateway")

// createCounters makes the file of a new incarnation.
func createCounters(path string) (*counterFile, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return nil, err
	}
	f := &counterFile{file: file}
	if err = unix.Fallocate(int(file.Fd()), 0, 0, headSize); err == nil {
		f.head, err = unix.Mmap(int(file.Fd()), 0, headSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("counters %s: %w", path, err)
	}
	copy(f.head, magic)
	return f, nil
}

// readCounters calls each for every slot of a file that a previous incarnation left. Slots are copies.
func readCounters(path string) (slots []*slot, causes []wire.Cause, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	if len(data) < headSize || string(data[:len(magic)]) != magic {
		return nil, nil, fmt.Errorf("%s: %w", path, errNotCounters)
	}
	n := min(binary.NativeEndian.Uint32(data[8:]), maxCauses)
	for i := range int(n) {
		name := data[causesAt+i*causeSize:][:causeSize]
		causes = append(causes, wire.Cause(bytes.TrimRight(name, "\x00")))
	}
	for at := headSize; at+slotSize <= len(data); at += slotSize {
		s := new(slot)
		copy(unsafe.Slice((*byte)(unsafe.Pointer(s)), slotSize), data[at:])
		if _, _, ok := s.key(); ok {
			slots = append(slots, s)
		}
	}
	return slots, causes, nil
}

// cause returns the index of a cause among the counters by cause. Beyond the last one causes share it.
func (f *counterFile) cause(c wire.Cause) int {
	for i, known := range f.causes {
		if known == c {
			return i
		}
	}
	if len(f.causes) == maxCauses {
		return maxCauses - 1
	}
	i := len(f.causes)
	copy(f.head[causesAt+i*causeSize:][:causeSize], c)
	binary.NativeEndian.PutUint32(f.head[8:], uint32(i)+1)
	f.causes = append(f.causes, c)
	return i
}

// take returns a slot for an instrument's day, all zero.
func (f *counterFile) take(instrument string, day wire.Day) (*slot, error) {
	if len(instrument) == 0 || len(instrument) >= nameSize {
		return nil, fmt.Errorf("instrument %q has no name of 1 to %d bytes", instrument, nameSize-1)
	}
	if len(f.free) == 0 {
		if err := f.grow(); err != nil {
			return nil, err
		}
	}
	s := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	copy(s.day[:], day)
	copy(s.name[1:], instrument)
	s.name[0] = byte(len(instrument))
	return s, nil
}

// release makes a slot free. Nobody may count in it any more.
func (f *counterFile) release(s *slot) {
	s.name[0] = 0
	clear(s.name[:])
	clear(s.day[:])
	for i := range s.counters {
		s.counters[i].Store(0)
	}
	f.free = append(f.free, s)
}

func (f *counterFile) grow() error {
	at := int64(headSize + f.chunks*chunkSize)
	if err := unix.Fallocate(int(f.file.Fd()), 0, at, int64(chunkSize)); err != nil {
		return fmt.Errorf("counters %s: reserve %d bytes: %w", f.file.Name(), chunkSize, err)
	}
	chunk, err := unix.Mmap(int(f.file.Fd()), at, chunkSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("counters %s: %w", f.file.Name(), err)
	}
	f.chunks++
	for i := chunkSlots - 1; i >= 0; i-- {
		f.free = append(f.free, (*slot)(unsafe.Pointer(&chunk[i*slotSize])))
	}
	return nil
}

// close closes the file. What is mapped stays so until the process ends: somebody may still be counting.
func (f *counterFile) close() error { return f.file.Close() }
