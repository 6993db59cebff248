// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// historyEvents and historyBytes bound what a watch can start from or be behind by. Bytes are those in the log: in memory an object
	// takes several times as many.
	historyEvents = 2048
	historyBytes  = 1 << 20
	// reserved is how many resource versions one record reserves.
	reserved = 1 << 20
)

var (
	// errChanged: the object is not the one that the caller has seen.
	errChanged = errors.New("the object was changed meanwhile")
	// errTooOld: the history does not reach back to where a watch wants to start.
	errTooOld = errors.New("too old resource version")
)

// codec is how a table's objects are stored. Nil functions mean that the table is
// not kept over restarts.
type codec struct {
	encode func(runtime.Object) ([]byte, error)
	decode func([]byte) (runtime.Object, error)
}

// table holds the objects of one resource. They are never changed, only replaced.
type table struct {
	name string // of the resource, with its group: feeds.substorm.dev
	codec
	objects map[types.NamespacedName]*entry
}

type entry struct {
	object  runtime.Object
	version uint64
	size    int // in the log, for what the history may hold
}

// event is a change of an object. Old is nil where it was created; where it was
// deleted, object has the version of the deletion.
type event struct {
	table   *table
	kind    watch.EventType
	version uint64
	object  runtime.Object
	old     runtime.Object
	size    int
}

// store holds all objects in memory, in the order of one number for all of them, and
// in the log.
type store struct {
	log     *slog.Logger
	changes *changeLog

	mu       sync.RWMutex
	tables   map[string]*table
	version  uint64 // the last one given out
	reserve  uint64 // none above it may be given out before another record reserves more
	history  []event
	size     int           // of the history, in bytes
	forgot   uint64        // version of the last event that left the history
	changed  chan struct{} // closed at the next change
	complain sync.Once
	// aside are objects that cannot be decoded.
	aside map[asideKey]aside
	// lost says, a line each, what could not be read at the start.
	lost []string
}

// openStore reads a folder's objects. Tables are those that there may be; objects of
// other resources are dropped, and counted.
func openStore(dir string, tables []*table, log *slog.Logger) (*store, error) {
	s := &store{log: log, tables: map[string]*table{}, aside: map[asideKey]aside{}, changed: make(chan struct{})}
	for _, t := range tables {
		t.objects = map[types.NamespacedName]*entry{}
		s.tables[t.name] = t
	}
	unknown := map[string]int{}
	changes, lost, err := openLog(dir, func(r record, line []byte) { s.replay(r, line, unknown) })
	if err != nil {
		return nil, err
	}
	for resource, n := range unknown {
		log.Warn("ignored stored objects of a resource that this version does not serve", "resource", resource, "records", n)
	}
	s.changes = changes
	s.report(lost)
	// Versions that Leases and Events were given, and that are not kept, lie below the reserve.
	s.version = max(s.version, s.reserve)
	if len(lost.damaged) > 0 {
		s.version += reserved // a damaged line may have reserved more
	}
	s.forgot = s.version
	if err := s.reserveMore(); err != nil {
		return nil, errors.Join(err, changes.close())
	}
	if len(lost.damaged) > 0 {
		s.rewrite() // each start would report the same lines
	}
	return s, nil
}

// report says what could not be read, and what to do.
func (s *store) report(lost losses) {
	if lost.torn > 0 {
		s.log.Warn("dropped the end of the log, which a crash left unfinished", "file", s.changes.path, "bytes", lost.torn)
	}
	for _, d := range lost.damaged {
		for _, of := range d.of {
			what := of + ": a change is damaged on the disk and is left out, so that it may be missing, as it was before, or there although it was deleted: " +
				"apply its manifest again, or delete it; the damaged line is in " + lost.aside
			s.lost = append(s.lost, what)
			s.log.Warn(what, "file", s.changes.path, "byte", d.at)
		}
	}
	for _, key := range s.asideKeys() {
		what := fmt.Sprintf("%s: it cannot be read, and is set aside: apply its manifest again, or start the version of Substorm that wrote it, for which the log keeps it: %v",
			objectName(key.resource, key.NamespacedName), s.aside[key].err)
		s.lost = append(s.lost, what)
		s.log.Warn(what, "file", s.changes.path)
	}
}

// asideKey names an object that is set aside.
type asideKey struct {
	resource string
	types.NamespacedName
}

// aside is an object that this version cannot decode: the line that has it, which stays in the log until the object is written again.
type aside struct {
	line []byte
	err  error
}

func (s *store) asideKeys() []asideKey {
	return slices.SortedFunc(maps.Keys(s.aside), func(a, b asideKey) int {
		return strings.Compare(objectName(a.resource, a.NamespacedName), objectName(b.resource, b.NamespacedName))
	})
}

func (s *store) replay(r record, line []byte, unknown map[string]int) {
	s.version = max(s.version, r.Version)
	if r.Resource == "" {
		s.version, s.reserve = max(s.version, s.reserve), max(s.reserve, r.Version)
		return
	}
	t := s.tables[r.Resource]
	if t == nil || t.decode == nil {
		unknown[r.Resource]++
		return
	}
	key := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	delete(t.objects, key)
	delete(s.aside, asideKey{t.name, key})
	if r.Object == nil {
		return
	}
	object, err := t.decode(r.Object)
	if err != nil {
		s.aside[asideKey{t.name, key}] = aside{slices.Clone(line), err}
		return
	}
	setVersion(object, r.Version)
	t.objects[key] = &entry{object, r.Version, len(r.Object)}
}

// reserveMore allows further resource versions. The caller holds the lock, or is alone.
func (s *store) reserveMore() error {
	written, err := line(record{Version: s.version + reserved})
	if err != nil {
		return err
	}
	mark, err := s.changes.append(written)
	if err != nil {
		return err
	}
	if err := s.changes.sync(mark); err != nil {
		return err
	}
	s.reserve = s.version + reserved
	return nil
}

// get returns an object and its version. The caller must not change the object.
func (s *store) get(t *table, key types.NamespacedName) (runtime.Object, uint64, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := t.objects[key]
	if e == nil {
		return nil, 0, false
	}
	return e.object, e.version, true
}

// list returns a namespace's objects, or all of them, by namespace and name, and the version that the list is of. The caller must not
// change the objects.
func (s *store) list(t *table, namespace string) ([]runtime.Object, uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return t.list(namespace), s.version
}

func (s *store) count(t *table) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(t.objects)
}

func (t *table) list(namespace string) []runtime.Object {
	keys := make([]types.NamespacedName, 0, len(t.objects))
	for key := range t.objects {
		if namespace == "" || key.Namespace == namespace {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int {
		if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	objects := make([]runtime.Object, len(keys))
	for i, key := range keys {
		objects[i] = t.objects[key].object
	}
	return objects
}

// write replaces an object that has a version (0: there is none) by another one (nil:
// deletes it), which becomes the store's, and returns it with its new version. It
// returns errChanged where the object has another version. A lazy change is on disk
// within lazySync, another one before write returns.
func (s *store) write(t *table, key types.NamespacedName, version uint64, object runtime.Object, lazy bool) (runtime.Object, error) {
	var body []byte
	if object != nil && t.encode != nil {
		setVersion(object, 0)
		var err error
		if body, err = t.encode(object); err != nil {
			return nil, err
		}
	}
	result, mark, err := s.apply(t, key, version, object, body)
	switch {
	case err != nil || mark == 0:
		return result, err
	case lazy:
		s.changes.syncSoon()
		return result, nil
	}
	return result, s.changes.sync(mark)
}

// apply is the part of write under the lock. The mark is 0 if nothing is to be synced.
func (s *store) apply(t *table, key types.NamespacedName, version uint64, object runtime.Object, body []byte) (runtime.Object, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := event{table: t, object: object, kind: watch.Added, size: 1 << 10}
	if current := t.objects[key]; current != nil {
		e.old, e.kind = current.object, watch.Modified
		e.size += current.size
		if current.version != version {
			return nil, 0, errChanged
		}
	} else if version != 0 {
		return nil, 0, errChanged
	}
	if object == nil {
		e.kind, e.object = watch.Deleted, e.old.DeepCopyObject()
	}
	if s.version >= s.reserve {
		if err := s.reserveMore(); err != nil {
			return nil, 0, err
		}
	}
	e.version = s.version + 1
	var mark int64
	if t.encode != nil {
		written, err := line(record{e.version, t.name, key.Namespace, key.Name, body})
		if err != nil {
			return nil, 0, err
		}
		if mark, err = s.changes.append(written); err != nil {
			return nil, 0, err
		}
		e.size += len(written)
	}
	s.version = e.version
	setVersion(e.object, e.version)
	delete(s.aside, asideKey{t.name, key})
	if object == nil {
		delete(t.objects, key)
	} else {
		t.objects[key] = &entry{object, e.version, len(body)}
	}
	s.remember(e)
	s.compact()
	return e.object, mark, nil
}

// remember appends an event to the history and wakes who waits for one.
func (s *store) remember(e event) {
	s.history = append(s.history, e)
	s.size += e.size
	drop := 0
	for len(s.history)-drop > historyEvents || s.size > historyBytes && len(s.history)-drop > 1 {
		s.size -= s.history[drop].size
		s.forgot = s.history[drop].version
		s.history[drop] = event{}
		drop++
	}
	s.history = s.history[drop:]
	close(s.changed)
	s.changed = make(chan struct{})
}

// compact rewrites the log if most of it is superseded. A failure leaves the log as it is, for another try at a later change.
func (s *store) compact() {
	if s.changes.due() {
		s.rewrite()
	}
}

// rewrite replaces the log with what there is now. The caller holds the lock, or is the only user.
func (s *store) rewrite() {
	lines, err := s.lines()
	if err == nil {
		err = s.changes.replace(lines)
	}
	if err != nil {
		s.complain.Do(func() { s.log.Warn("cannot compact the log; it grows", "file", s.changes.path, "error", err) })
	}
}

// lines are a log of what there is now.
func (s *store) lines() ([][]byte, error) {
	reserve, err := line(record{Version: s.reserve})
	if err != nil {
		return nil, err
	}
	lines := [][]byte{reserve}
	for _, set := range s.aside {
		lines = append(lines, set.line)
	}
	for _, t := range s.tables {
		if t.encode == nil {
			continue
		}
		for key, e := range t.objects {
			body, err := t.encode(e.object)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", t.name, key, err)
			}
			written, err := line(record{e.version, t.name, key.Namespace, key.Name, body})
			if err != nil {
				return nil, err
			}
			lines = append(lines, written)
		}
	}
	return lines, nil
}

// since returns the events after a version, the store's version, and a channel that is
// closed at the next change.
func (s *store) since(version uint64) ([]event, uint64, <-chan struct{}, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if version < s.forgot {
		return nil, 0, nil, errTooOld
	}
	i, found := slices.BinarySearchFunc(s.history, version, func(e event, v uint64) int {
		switch {
		case e.version < v:
			return -1
		case e.version > v:
			return 1
		}
		return 0
	})
	if found {
		i++
	}
	return slices.Clone(s.history[i:]), s.version, s.changed, nil
}

func (s *store) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes.close()
}

func setVersion(object runtime.Object, version uint64) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return // lists only, which are not stored
	}
	text := ""
	if version > 0 {
		text = strconv.FormatUint(version, 10)
	}
	accessor.SetResourceVersion(text)
}
