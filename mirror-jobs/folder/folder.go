// SPDX-License-Identifier: Apache-2.0

// Package folder keeps a mirror of a Site's archive in a folder: each object as a file
// <instrument>/<path> with the time of its receipt, and in .substorm/ what the mirror knows of the
// other side. A file has its real name only once all its bytes are there and have the digest of the
// object. Objects that a list says are held are on the disk: Sync goes before SetLines.
package folder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/mirror-jobs/plan"
)

const (
	// own is the folder of the mirror's own files; no instrument has such a name.
	own = ".substorm"
	// unfinished begins the names of files that are not whole.
	unfinished = ".substorm-"
	stateFile  = own + "/state.json"
	lockFile   = own + "/lock"
	// runningFile is there while a run lasts: one that is found was killed.
	runningFile = own + "/running"
	format      = 1
)

var (
	// ErrBusy: another run has the folder.
	ErrBusy = errors.New("another run mirrors into the folder: wait until it has ended")
	// ErrPath: an object's path is none that a file may have here.
	ErrPath = errors.New("no file may have the path")
)

// State is what a mirror knows of the whole of the other side.
type State struct {
	Format int    `json:"format"`
	Site   string `json:"site"`
	// Selects is the digest of the selection and policy of the last run. ETag and Instruments
	// were noted under it.
	Selects string `json:"selects,omitempty"`
	// ETag of the root that was acted upon in full; empty: something was left to do.
	ETag string `json:"etag,omitempty"`
	// Now is the latest time that the clock of the other side showed and that could be believed.
	Now time.Time `json:"now,omitzero"`
	// Instruments are the tags of those that were.
	Instruments map[string]string `json:"instruments,omitempty"`
	// Confirms: the other side waits for this mirror, and was sent what is here for all days with noted tags.
	Confirms bool `json:"confirms,omitempty"`
	// Ledger is the one of the other side in which that stands.
	Ledger string `json:"ledger,omitempty"`
	// ComparedAt is when a run last compared all files and lacked none; zero: never.
	ComparedAt time.Time `json:"comparedAt,omitzero"`
	// Forced: a run with --force began, and none has compared all files since.
	Forced bool `json:"forced,omitempty"`
	// Removed is what runs removed that was retracted or purged at the other side.
	Removed plan.Removed `json:"removed,omitempty"`
}

// Folder is a folder that a run has to itself. Its methods may be called from several goroutines, except those about one instrument and
// day.
type Folder struct {
	path  string
	root  *os.Root
	lock  *os.File
	names atomic.Uint64

	interrupted bool

	mu    sync.Mutex
	state State
	made  map[string]bool // folders that are there
	large map[string]bool // files of parts that were asked for
}

// Open opens a folder, and makes it if it does not exist. Errors: ErrBusy, of the file system.
func Open(path string) (*Folder, error) {
	if err := os.MkdirAll(filepath.Join(path, own), 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	f := &Folder{path: path, root: root, made: map[string]bool{}, large: map[string]bool{}}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *Folder) open() (err error) {
	if f.lock, err = f.root.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return err
	}
	if err := takeLock(f.lock); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	f.state.Format = format
	switch err := f.read(stateFile, &f.state); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		f.state, f.interrupted = State{Format: format}, true // as after a power failure: everything is compared again
	case f.state.Format != format:
		return fmt.Errorf("%s has format %d, and this program reads %d", filepath.Join(f.path, stateFile), f.state.Format, format)
	}
	if f.state.Instruments == nil {
		f.state.Instruments = map[string]string{}
	}
	if _, err := f.root.Stat(runningFile); err == nil {
		f.interrupted = true
		if err := f.removeUnfinished(); err != nil {
			return err
		}
	}
	return f.root.WriteFile(runningFile, nil, 0o644)
}

// Close gives the folder back.
func (f *Folder) Close() error {
	return errors.Join(f.root.Remove(runningFile), f.close())
}

func (f *Folder) close() error {
	var err error
	if f.lock != nil {
		err = errors.Join(release(f.lock), f.lock.Close())
	}
	return errors.Join(err, f.root.Close())
}

// Path of the folder.
func (f *Folder) Path() string { return f.path }

// BelongsTo records the site that the folder mirrors. Errors: the folder is a mirror of another site.
func (f *Folder) BelongsTo(site string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.Site != "" && f.state.Site != site {
		return fmt.Errorf("%s is a mirror of site %s, not of %s: give another folder", f.path, f.state.Site, site)
	}
	f.state.Site = site
	return nil
}

// Select says what a run selects and removes, as a digest. A day that is done under one selection may lack objects
// under another, so tags that were noted under another are forgotten.
func (f *Folder) Select(digest string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.Selects != digest {
		f.state.Selects, f.state.ETag, f.state.Instruments, f.state.Confirms = digest, "", map[string]string{}, false
	}
}

// Interrupted says whether the previous run was killed: then objects may be there that it could not note.
func (f *Folder) Interrupted() bool { return f.interrupted }

// State returns what is known of the whole.
func (f *Folder) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// SetInstrument notes that all of an instrument was acted upon as of a tag; empty: it was not.
func (f *Folder) SetInstrument(instrument, tag string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Instruments[instrument] = tag
}

// SetRemoved writes the state with what runs removed. It is on the disk after Sync.
func (f *Folder) SetRemoved(days plan.Removed) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Removed = days
	return f.write(stateFile, f.state)
}

// SetForced writes the state, with whether a forced run is to be made again. It is on the disk after Sync.
func (f *Folder) SetForced(forced bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Forced = forced
	return f.write(stateFile, f.state)
}

// SetConfirms notes whether the other side waits for this mirror, and knows what is here.
func (f *Folder) SetConfirms(confirms bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Confirms = confirms
}

// SetLedger notes in which ledger of the other side stands what is here.
func (f *Folder) SetLedger(ledger string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Ledger = ledger
}

// SetCompared notes when all files were last compared.
func (f *Folder) SetCompared(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.ComparedAt = at
}

// SetETag writes the state, with the ETag of the root.
func (f *Folder) SetETag(etag string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.ETag = etag
	return f.write(stateFile, f.state)
}

// SetNow notes what the clock of the other side shows. SetETag writes it.
func (f *Folder) SetNow(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Now = now
}

// read reads JSON.
func (f *Folder) read(name string, v any) error {
	text, err := f.root.ReadFile(name)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// write replaces a file of JSON at once. It is on the disk after Sync.
func (f *Folder) write(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.replace(name, append(text, '\n'))
}

func (f *Folder) replace(name string, data []byte) error {
	temporary := f.temporary(name)
	file, err := f.root.Create(temporary)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = f.root.Rename(temporary, name)
	}
	if err != nil {
		return errors.Join(err, f.root.Remove(temporary))
	}
	return nil
}

// temporary is the name of a file beside another while it is written.
func (f *Folder) temporary(name string) string {
	return filepath.Join(filepath.Dir(name), fmt.Sprintf("%s%d", unfinished, f.names.Add(1)))
}

// removeUnfinished removes what a killed run had not finished, except for parts of large objects, which the next run continues.
func (f *Folder) removeUnfinished() error {
	return fs.WalkDir(f.root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), unfinished) {
			return err
		}
		return f.root.Remove(path)
	})
}

// mkdir makes a folder, and those above it.
func (f *Folder) mkdir(path string) error {
	f.mu.Lock()
	is := f.made[path]
	f.mu.Unlock()
	if is {
		return nil
	}
	if err := f.root.MkdirAll(path, 0o755); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.made) > 1<<16 {
		clear(f.made)
	}
	f.made[path] = true
	return nil
}

// forget forgets that a folder is there.
func (f *Folder) forget(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.made, path)
}
