// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// logFormat is written into the first line of the log. Raise it when an older
	// version of Substorm would misread what is written.
	logFormat = 1
	logName   = "objects.log"
	// lazySync is the longest that a change which may be lost by a power cut stays unsynced: those of status, which controllers make again.
	lazySync = time.Minute
	// compactAt is the smallest log that is compacted.
	compactAt = 4 << 20
)

// header is the first line of a log.
type header struct {
	Format int `json:"format"`
}

// record is one change, in one line of the log after its checksum. A record
// without Resource reserves resource versions: none above Version was given out.
type record struct {
	Version   uint64          `json:"version"`
	Resource  string          `json:"resource,omitempty"`
	Namespace string          `json:"namespace,omitempty"`
	Name      string          `json:"name,omitempty"`
	Object    json.RawMessage `json:"object,omitempty"` // absent: the object was deleted
}

// changeLog is an append-only file of records. A record is written before the change
// is seen by anyone, and synced before the change is acknowledged, so that after
// SIGKILL or a power cut the file holds what was acknowledged, in order, and maybe
// a torn line at its end.
type changeLog struct {
	path string

	// Under the store's lock.
	file *os.File
	end  int64 // where the next record goes
	base int64 // size just after the last compaction

	syncing sync.Mutex // held by who syncs; others then find theirs synced too
	state   sync.Mutex // guards what follows
	written int64      // bytes appended since the start
	synced  int64      // of these, how many are on disk
	timer   *time.Timer
	failed  error // the first sync that failed; what is on disk is unknown from then on
	onFail  func(error)
}

// losses are what a log held that could not be read.
type losses struct {
	// torn is how many bytes at the end are of a write that was cut off, which was never acknowledged. They are dropped.
	torn int64
	// damaged are lines that are not what was written. They are kept in the file that aside names, and leave the log at its next compaction.
	damaged []damage
	aside   string
}

// damage is a line that is not what was written.
type damage struct {
	// at is its first byte in the log, and of the objects that it seems to be about: two where the end of a line is damaged.
	at   int64
	of   []string
	line []byte
}

// openLog opens the log of a folder, or makes one, and calls each for every record that can be read, with its line.
func openLog(dir string, each func(record, []byte)) (l *changeLog, lost losses, err error) {
	l = &changeLog{path: filepath.Join(dir, logName)}
	_ = os.Remove(l.path + ".new") // a compaction that did not finish
	l.file, err = os.OpenFile(l.path, os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = l.replace(nil); err != nil {
			return nil, lost, err
		}
		return l, lost, nil
	}
	if err != nil {
		return nil, lost, err
	}
	if lost, err = l.load(each); err == nil {
		err = l.keepDamaged(&lost)
	}
	if err != nil {
		_ = l.file.Close()
		return nil, lost, err
	}
	return l, lost, nil
}

func (l *changeLog) load(each func(record, []byte)) (lost losses, err error) {
	in := bufio.NewReaderSize(l.file, 1<<20)
	line, err := in.ReadBytes('\n')
	h := header{}
	if err != nil || json.Unmarshal(line, &h) != nil || h.Format < 1 {
		return lost, fmt.Errorf("%s is not a log of Substorm's objects: its first line is %.80q", l.path, line)
	}
	if h.Format > logFormat {
		return lost, fmt.Errorf("%s was written by a newer version of Substorm (format %d; this one reads up to %d): start that version, or choose another folder",
			l.path, h.Format, logFormat)
	}
	l.end = int64(len(line))
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return lost, fmt.Errorf("read %s: %w", l.path, err)
		}
		if len(line) == 0 {
			break
		}
		if r, ok := parse(line); ok {
			each(r, line)
		} else if !bytes.HasSuffix(line, []byte("\n")) {
			lost.torn = int64(len(line))
			break
		} else {
			lost.damaged = append(lost.damaged, damage{l.end, about(line), line})
		}
		l.end += int64(len(line))
	}
	l.base = l.end
	if lost.torn > 0 {
		return lost, l.shorten()
	}
	return lost, nil
}

// shorten cuts the log to what could be read.
func (l *changeLog) shorten() error {
	if err := l.file.Truncate(l.end); err != nil {
		return fmt.Errorf("shorten %s: %w", l.path, err)
	}
	return l.file.Sync()
}

// keepDamaged writes damaged lines to a file of their own.
func (l *changeLog) keepDamaged(lost *losses) error {
	if len(lost.damaged) == 0 {
		return nil
	}
	var lines []byte
	for _, d := range lost.damaged {
		lines = append(lines, d.line...)
	}
	lost.aside = l.path + ".unreadable-" + time.Now().UTC().Format("20060102T150405Z")
	return writeFile(lost.aside, lines)
}

// named finds which object a record is of, also where the rest of it cannot be read.
var named = regexp.MustCompile(`"resource":"([a-z.]+)"(?:,"namespace":"([a-z0-9-]+)")?,"name":"([a-z0-9.-]+)"`)

// about says which objects a line seems to be of.
func about(line []byte) []string {
	var all []string
	for _, found := range named.FindAllSubmatch(line, -1) {
		if of := objectName(string(found[1]), types.NamespacedName{Namespace: string(found[2]), Name: string(found[3])}); !slices.Contains(all, of) {
			all = append(all, of)
		}
	}
	if len(all) == 0 {
		return []string{"an unknown object"}
	}
	return all
}

func objectName(resource string, key types.NamespacedName) string {
	return resource + " " + strings.TrimPrefix(key.String(), "/")
}

// line is a record as it is written: its checksum in 8 hexadecimal digits, a space,
// JSON, a newline.
func line(r record) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(make([]byte, 0, len(body)+10), "%08x %s\n", crc32.ChecksumIEEE(body), body), nil
}

func parse(line []byte) (record, bool) {
	r := record{}
	if len(line) < 10 || line[8] != ' ' || line[len(line)-1] != '\n' {
		return r, false
	}
	sum, err := strconv.ParseUint(string(line[:8]), 16, 32)
	body := line[9 : len(line)-1]
	if err != nil || uint32(sum) != crc32.ChecksumIEEE(body) || json.Unmarshal(body, &r) != nil {
		return r, false
	}
	return r, true
}

// append writes a line and returns what to pass to sync. The caller holds the store's
// lock. After an error the log is as before: the next record goes to the same place.
func (l *changeLog) append(line []byte) (mark int64, err error) {
	if err := l.err(); err != nil {
		return 0, err
	}
	if _, err := l.file.WriteAt(line, l.end); err != nil {
		return 0, fmt.Errorf("write %s: %w", l.path, err)
	}
	l.end += int64(len(line))
	l.state.Lock()
	defer l.state.Unlock()
	l.written += int64(len(line))
	return l.written, nil
}

// sync returns once everything up to a mark is on disk. One sync serves all who wait.
func (l *changeLog) sync(mark int64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.state.Lock()
	written, synced, failed := l.written, l.synced, l.failed
	l.state.Unlock()
	if failed != nil {
		return failed
	}
	if synced >= mark {
		return nil
	}
	if err := l.file.Sync(); err != nil {
		return l.fail(fmt.Errorf("sync %s: %w", l.path, err))
	}
	l.state.Lock()
	l.synced = max(l.synced, written)
	l.state.Unlock()
	return nil
}

// syncSoon sees to it that everything written is on disk within lazySync.
func (l *changeLog) syncSoon() {
	l.state.Lock()
	defer l.state.Unlock()
	if l.timer != nil {
		return
	}
	l.timer = time.AfterFunc(lazySync, func() {
		l.state.Lock()
		mark := l.written
		l.timer = nil
		l.state.Unlock()
		_ = l.sync(mark) // fail has kept the error
	})
}

// fail keeps the first failure to sync: the kernel may have dropped what it could not
// write, so nothing is accepted after it.
func (l *changeLog) fail(err error) error {
	l.state.Lock()
	first := l.failed == nil
	if first {
		l.failed = err
	}
	l.state.Unlock()
	if first && l.onFail != nil {
		l.onFail(err)
	}
	return err
}

func (l *changeLog) err() error {
	l.state.Lock()
	defer l.state.Unlock()
	return l.failed
}

// due says whether most of the log is superseded.
func (l *changeLog) due() bool { return l.end > compactAt && l.end > 4*l.base }

// replace writes a new log that holds these lines, and synced; then it takes the place of
// the old one. The caller holds the store's lock. After an error the old log is in use.
func (l *changeLog) replace(lines [][]byte) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	first, err := json.Marshal(header{logFormat})
	if err != nil {
		return err
	}
	content := slices.Concat(first, []byte("\n"))
	for _, line := range lines {
		content = append(content, line...)
	}
	temporary := l.path + ".new"
	if err := writeFile(temporary, content); err != nil {
		return err
	}
	file, err := os.OpenFile(temporary, os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, l.path); err != nil {
		_ = file.Close()
		return err
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.end, l.base = file, int64(len(content)), int64(len(content))
	if err := syncDir(filepath.Dir(l.path)); err != nil {
		return l.fail(err)
	}
	l.state.Lock()
	defer l.state.Unlock()
	l.synced = l.written
	return nil
}

func (l *changeLog) close() error {
	l.state.Lock()
	mark, timer := l.written, l.timer
	l.state.Unlock()
	if timer != nil {
		timer.Stop()
	}
	return errors.Join(l.sync(mark), l.file.Close())
}
