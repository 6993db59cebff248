// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/durable"
	"github.com/substorm/substorm/internal/wire"
)

// The counters of an incarnation live in a file that is mapped into memory: what was counted before a SIGKILL is in the
// page cache and so in the file. It is laid out for this machine's byte order, and no other program reads it:
//
//	head     8 bytes magic, 4 bytes number of causes, then causes of 32 bytes each, in the order of their counters; the
//	         boot of the machine; at 4 KiB keys of 16 bytes, see ends
//	slot...  instrument (length and up to 95 bytes), day (10 bytes, 6 spare), counters of 8 bytes, and twice what was
//	         received, of which one is current
//
// A slot whose instrument has length 0 is free. The file grows by chunks of slots, whose space on the disk is reserved:
// writing to a mapped page for which there is no space would end the process.
const (
	magic      = "SBSTLDG5"
	headSize   = 64 << 10 // as large as a page may be
	causeSize  = 32
	maxCauses  = 24
	causesAt   = 16
	bootAt     = causesAt + maxCauses*causeSize
	bootSize   = 64
	nameSize   = 96
	daySize    = 16
	countersAt = nameSize + daySize
	slotSize   = int(unsafe.Sizeof(slot{}))
	chunkSlots = 1024
	chunkSize  = chunkSlots * slotSize
)

// nameSizes are the sizes of the layouts that can be read, by magic: the layout before had no space for the names of
// guests.
var nameSizes = map[string]int{magic: nameSize, "SBSTLDG4": 64}

// counter is the index of a counter in a slot.
type counter int

const (
	datagramsRead counter = iota
	datagramsReceived
	datagramBytesReceived
	objectsBegun
	objectBytesRead
	objectsAcknowledged
	unfinishedBytes
	receivedChanges // how often what was received changed: the last bit says which is current
	droppedFirst    // by cause
	unfinishedFirst = droppedFirst + maxCauses
	counterCount    = int(unfinishedFirst) + maxCauses
)

// slot is one instrument's day in the mapped file.
type slot struct {
	name     [nameSize]byte
	day      [daySize]byte
	counters [counterCount]atomic.Uint64
	received [2]received
}

// received is what the ledger says of received objects. It changes as a whole: a kill leaves what was, or what is.
type received struct {
	objects, objectBytes    uint64
	resolved, resolvedBytes uint64
	digest                  wire.Digest
}

// current returns what was received, as of the last change.
func (s *slot) current() received { return s.received[s.get(receivedChanges)&1] }

// change replaces what was received. It must not run beside itself or current.
func (s *slot) change(f func(*received)) {
	n := s.get(receivedChanges)
	next := s.received[n&1]
	f(&next)
	s.received[(n+1)&1] = next
	s.counters[receivedChanges].Store(n + 1)
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
	// named: slots were taken that may not be on the disk.
	named atomic.Bool
}

var errNotCounters = errors.New("not a counters file of a gateway")

// createCounters makes the file of a new incarnation, whose name is on the disk then.
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
	copy(f.head[bootAt:bootAt+bootSize], boot())
	if err := errors.Join(file.Sync(), durable.SyncFolder(filepath.Dir(path))); err != nil {
		_ = file.Close()
		return nil, err
	}
	return f, nil
}

// sync writes slots that were taken to the disk: after a power cut it is known which instruments and days lost
// counts. It may run beside the other methods.
func (f *counterFile) sync() error {
	if !f.named.Swap(false) {
		return nil
	}
	if err := f.file.Sync(); err != nil {
		f.named.Store(true)
		return fmt.Errorf("counters: %w", err)
	}
	return nil
}

// boot names the time since the machine was started: counters of another boot may lack what had not got to the disk.
func boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// left is what an incarnation left that has ended: copies of its slots, the causes of their counters, the keys of what it
// counted that may still be in the spool, and whether all that it counted is there.
type left struct {
	slots    []*slot
	causes   []wire.Cause
	ends     []endKey
	complete bool
}

// readCounters reads a file of counters. Errors: errNotCounters, and the file system's.
func readCounters(path string) (left, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return left{}, err
	}
	if len(data) < headSize {
		return left{}, fmt.Errorf("%s: %w", path, errNotCounters)
	}
	name, known := nameSizes[string(data[:len(magic)])]
	if !known {
		return left{}, fmt.Errorf("%s: %w", path, errNotCounters)
	}
	is := boot()
	l := left{complete: is != "" && string(bytes.TrimRight(data[bootAt:bootAt+bootSize], "\x00")) == is}
	n := min(binary.NativeEndian.Uint32(data[8:]), maxCauses)
	for i := range int(n) {
		cause := data[causesAt+i*causeSize:][:causeSize]
		l.causes = append(l.causes, wire.Cause(bytes.TrimRight(cause, "\x00")))
	}
	for _, k := range endsIn(data) {
		if k != (endKey{}) {
			l.ends = append(l.ends, k)
		}
	}
	size := slotSize - nameSize + name
	for at := headSize; at+size <= len(data); at += size {
		s := new(slot)
		is := unsafe.Slice((*byte)(unsafe.Pointer(s)), slotSize)
		copy(is[:name], data[at:])
		copy(is[nameSize:], data[at+name:at+size])
		if _, _, ok := s.key(); ok {
			l.slots = append(l.slots, s)
		}
	}
	return l, nil
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

// take returns a slot for an instrument's day that continues from was, which the file has as a whole or not at
// all.
func (f *counterFile) take(instrument string, day wire.Day, before wire.Totals) (*slot, error) {
	if len(instrument) == 0 || len(instrument) >= nameSize {
		return nil, fmt.Errorf("the name of instrument %q must have 1 to %d bytes", instrument, nameSize-1)
	}
	if len(f.free) == 0 {
		if err := f.grow(); err != nil {
			return nil, err
		}
	}
	s := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.begin(s, before)
	copy(s.day[:], day)
	copy(s.name[1:], instrument)
	s.name[0] = byte(len(instrument))
	f.named.Store(true)
	return s, nil
}

// begin lets a slot count on from totals.
func (f *counterFile) begin(s *slot, before wire.Totals) {
	s.change(func(r *received) {
		*r = received{before.Objects, before.ObjectBytes, before.Resolved, before.ResolvedBytes, before.Digest}
	})
	s.add(objectsAcknowledged, before.Acknowledged)
	s.add(unfinishedBytes, before.UnfinishedBytes)
	s.add(objectsBegun, before.Objects+sum(before.Unfinished)-before.Resolved)
	s.add(objectBytesRead, before.ObjectBytes+before.UnfinishedBytes-before.ResolvedBytes)
	for cause, n := range before.Unfinished {
		s.add(unfinishedFirst+counter(f.cause(cause)), n)
	}
	s.add(datagramsReceived, before.Datagrams)
	s.add(datagramBytesReceived, before.DatagramBytes)
	s.add(datagramsRead, before.Datagrams+read(before.Dropped))
	for cause, n := range before.Dropped {
		s.add(droppedFirst+counter(f.cause(cause)), n)
	}
}

// release makes a slot free. No goroutine may count in it any more.
func (f *counterFile) release(s *slot) {
	s.name[0] = 0
	clear(s.name[:])
	clear(s.day[:])
	for i := range s.counters {
		s.counters[i].Store(0)
	}
	clear(s.received[:])
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

// close closes the file. Its mapping stays until the process ends: a goroutine may still be
// counting.
func (f *counterFile) close() error { return f.file.Close() }
