// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

const (
	// modeFile and modeDir are the same for all: the client's file system does not decide who may
	// read the data, and a client that copies an archive may have to move it about.
	modeFile = 0o100644
	modeDir  = 0o040755
	// ahead is how many files are listed before those are asked for that were, and idleAhead
	// how many while the client asks for none.
	ahead     = 1000
	idleAhead = 10_000
	// askEvery is how often a list that grows asks for memory, in entries.
	askEvery = 1024
	slotCost = 16
	// dirCost is what a directory takes whose list is still to be sent.
	dirCost = 256
)

// fileList is what is kept of a list as long as the client may ask for its files: the name and the
// place of each entry.
type fileList struct {
	first int32
	slots []slot
	names []byte
	// origins are the origins of the slots, each once in a row.
	origins []origin
	dirs    int64
	held    int64
}

// slot is an entry: of a directory origin is -1.
type slot struct {
	name   uint32
	length uint16
	origin int32
}

// origin is a place and a day of receipt.
type origin struct {
	place
	day wire.Day
}

// size is how many entries a list has.
func (l *fileList) size() int { return len(l.slots) }

func (l *fileList) addFile(f file, p place) {
	is := origin{p, f.day}
	if n := len(l.origins); n == 0 || l.origins[n-1] != is {
		l.origins = append(l.origins, is)
	}
	l.slots = append(l.slots, slot{uint32(len(l.names)), uint16(len(f.name)), int32(len(l.origins) - 1)})
	l.names = append(l.names, f.name...)
}

func (l *fileList) addDir() {
	l.slots = append(l.slots, slot{origin: -1})
	l.dirs++
}

// file returns the place of a slot's file, and its name; not ok: it is a directory.
func (l *fileList) file(i int) (origin, string, bool) {
	is := l.slots[i]
	if is.origin < 0 {
		return origin{}, "", false
	}
	return l.origins[is.origin], string(l.names[is.name : is.name+uint32(is.length)]), true
}

func (l *fileList) cost() int64 {
	return int64(cap(l.slots))*slotCost + int64(cap(l.names)) + int64(cap(l.origins))*64 + l.dirs*dirCost
}

// lists are the file lists of a transfer.
type lists struct {
	// open are the lists that the client may ask for, and current the index of the one that it
	// asked for last.
	open    []*fileList
	current int
	// next is the first index of the list to come.
	next int32
	// waiting are directories whose lists are still to be sent: the subdirectories of one directory
	// together, the innermost ones last. Dirs is how many directories were listed.
	waiting [][]waiting
	dirs    int32
	ended   bool
	// The entry before, since only what is different is sent.
	name string
	time int64
	mode int32
}

type waiting struct {
	folder *folder
	index  int32
}

// listed is how many entries are behind the list that the client asks for.
func (l *lists) listed() int {
	count := 0
	for _, list := range l.open[min(len(l.open), l.current+1):] {
		count += list.size()
	}
	return count
}

// find returns the list with an index, and its place in it; -1 is the directory itself.
func (l *lists) find(index int32) (*fileList, int, bool) {
	at := sort.Search(len(l.open), func(i int) bool { return l.open[i].first-1 > index }) - 1
	if at < 0 {
		return nil, 0, false
	}
	list := l.open[at]
	in := int(index - list.first)
	if in >= list.size() || in < 0 && list.first == 0 {
		return nil, 0, false
	}
	l.current = at
	return list, in, true
}

// begin begins a list.
func (s *session) begin() *fileList {
	list := &fileList{first: s.lists.next}
	s.lists.open = append(s.lists.open, list)
	return list
}

// end ends a list, which may lack something that the client asked for.
func (s *session) end(list *fileList) {
	failed := s.failed
	switch {
	case s.agreed.varint:
		s.out.varint(0)
		s.out.varint(failed)
	case failed != 0 && s.agreed.safeList:
		s.out.short(entryExtended | entryListFailed)
		s.out.varint(failed)
	default:
		s.out.byte(0)
		if failed != 0 {
			s.out.messageInt(frameIOError, failed)
		}
	}
	s.lists.next = list.first + int32(list.size())
	if s.agreed.recurse {
		s.lists.next++ // between two lists one index stands for the directory of the second
	}
}

// errNoMemory: lists of all transfers together take all that they may.
var errNoMemory = refuse(exitPartial, "the list of files is longer than this server has memory for now: ask again later, for one instrument or day at a time, "+
	"or without what needs the whole list at once (--delete-before, --delete-after, --delay-updates, --prune-empty-dirs, --no-inc-recursive)")

// reserve has a list's memory counted. Error: a refusal.
func (s *session) reserve(list *fileList) error {
	cost := list.cost()
	if cost > list.held {
		if !s.memory.TryAcquire(cost - list.held) {
			return errNoMemory
		}
		list.held = cost
	}
	return nil
}

func (s *session) free(list *fileList) {
	s.memory.Release(list.held)
	list.held = 0
}

// sendFirst sends the first list of a transfer: the whole list, or its top.
func (s *session) sendFirst(ctx context.Context, t *top) error {
	if s.agreed.recurse {
		s.lists.next = 1
	}
	list := s.begin()
	if t.dot {
		dot := t.folder
		dot.name = "."
		s.entryDir(list, &dot)
	}
	if err := s.sendContent(ctx, list, &t.folder); err != nil {
		return err
	}
	s.end(list)
	if !s.agreed.recurse {
		s.lists.ended = true
		s.noOwners()
		return nil
	}
	s.sendEnd()
	if list.size() == 1 {
		return s.sendMore(ctx, 1)
	}
	return nil
}

// noOwners ends the lists of users and groups, which are empty.
func (s *session) noOwners() {
	for _, asked := range []bool{s.options.users, s.options.groups} {
		if asked && !s.options.numeric {
			s.out.varint(0)
		}
	}
}

// sendMore sends lists of further directories, until so many entries are listed ahead.
func (s *session) sendMore(ctx context.Context, atLeast int) error {
	for !s.lists.ended && s.lists.listed() < atLeast {
		deepest := &s.lists.waiting[len(s.lists.waiting)-1]
		is := (*deepest)[0]
		*deepest = (*deepest)[1:]
		s.out.index(ndxListBase - is.index)
		list := s.begin()
		if err := s.sendContent(ctx, list, is.folder); err != nil {
			return err
		}
		s.end(list)
		s.sendEnd()
	}
	return s.out.err
}

// sendEnd sends the end of the lists if there are no further ones.
func (s *session) sendEnd() {
	l := &s.lists
	for len(l.waiting) > 0 && len(l.waiting[len(l.waiting)-1]) == 0 {
		l.waiting = l.waiting[:len(l.waiting)-1]
	}
	if len(l.waiting) == 0 && !l.ended {
		l.ended = true
		s.out.index(ndxListEnd)
	}
}

// sendContent sends the entries of a folder; with recursion by lists, the entries of its folders
// have lists of their own.
func (s *session) sendContent(ctx context.Context, list *fileList, f *folder) error {
	items, held, err := s.children(ctx, f)
	defer func() { s.view.done(held) }()
	if err != nil {
		return err
	}
	sums := s.newSums(ctx, items)
	defer sums.stop()
	var below []waiting
	for i := range items {
		entry := &items[i]
		if list.size()%askEvery == 0 {
			if err := s.reserve(list); err != nil {
				return err
			}
		}
		if entry.folder == nil {
			if err := s.entryFile(list, f, entry, sums); err != nil {
				return err
			}
			continue
		}
		index := s.entryDir(list, entry.folder)
		if s.agreed.recurse {
			below = append(below, waiting{entry.folder, index})
		} else if err := s.sendContent(ctx, list, entry.folder); err != nil {
			return err
		}
	}
	if len(below) > 0 {
		s.lists.waiting = append(s.lists.waiting, below)
	}
	return s.reserve(list)
}

// entryFile sends the entry of a file.
func (s *session) entryFile(list *fileList, in *folder, entry *item, sums *sums) error {
	s.entry(join(in.name, entry.name), 0, entry.size, entry.at, modeFile)
	if s.options.checksum {
		sum, err := sums.next()
		if err != nil {
			return err
		}
		s.out.bytes(sum)
	}
	list.addFile(entry.file, entry.place)
	s.totalSize += entry.size
	return s.out.err
}

// entryDir sends the entry of a directory, and returns its index among directories.
func (s *session) entryDir(list *fileList, f *folder) int32 {
	flags := entryNoContent
	switch {
	case f.content && f.top:
		flags = entryTop
	case f.content:
		flags = 0
	case f.implied:
		flags = entryTop | entryNoContent
	}
	changed, err := f.day.Start()
	if err != nil {
		changed = time.Unix(0, 0)
	}
	s.entry(f.name, flags, 0, changed, modeDir)
	list.addDir()
	s.lists.dirs++
	return s.lists.dirs - 1
}

// entry sends the fields that differ from the entry before. The user and group are always the same;
// the first entry has none.
func (s *session) entry(name string, flags int, size int64, at time.Time, mode int32) {
	l := &s.lists
	flags |= entrySameUser | entrySameGroup
	seconds, nanos := at.Unix(), int32(at.Nanosecond())
	if seconds == l.time {
		flags |= entrySameTime
	}
	if mode == l.mode {
		flags |= entrySameMode
	}
	if nanos != 0 && s.protocol >= 31 {
		flags |= entryNanoseconds
	}
	same := common(name, l.name)
	rest := name[same:]
	if same > 0 {
		flags |= entrySameName
	}
	if len(rest) > 255 {
		flags |= entryLongName
	}
	s.entryFlags(flags)
	if same > 0 {
		s.out.byte(byte(same))
	}
	if len(rest) > 255 {
		s.out.varint(int32(len(rest)))
	} else {
		s.out.byte(byte(len(rest)))
	}
	s.out.text(rest)
	s.out.varlong(size, 3)
	if flags&entrySameTime == 0 {
		s.out.varlong(seconds, 4)
	}
	if flags&entryNanoseconds != 0 {
		s.out.varint(nanos)
	}
	if flags&entrySameMode == 0 {
		s.out.int(mode)
	}
	l.name, l.time, l.mode = name, seconds, mode
}

// entryFlags are never 0, which is the end of a list.
func (s *session) entryFlags(flags int) {
	switch {
	case s.agreed.varint:
		s.out.varint(int32(flags))
	case flags&0xff00 != 0:
		s.out.short(uint16(flags | entryExtended))
	default:
		s.out.byte(byte(flags))
	}
}

// common is how many bytes two names have in common at their beginning, as far as that
// can be said in a byte.
func common(a, b string) int {
	n := min(len(a), len(b), 255)
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// days says how long a window is.
func days(window time.Duration) string {
	if whole := window / (24 * time.Hour); window%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", whole)
	}
	return window.String()
}
