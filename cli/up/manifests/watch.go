// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long files are left alone before they are read: an editor writes, renames and removes.
	settle = 300 * time.Millisecond
	// maxSettle is how long they are waited for at most: in the same folder something else may be written all the time.
	maxSettle = 3 * time.Second
	// lookEvery is how often they are read without an event: there is none of a folder that was removed and made again.
	lookEvery = 5 * time.Second
)

// Sum tells files with the same content from others.
type Sum [sha256.Size]byte

// SumOf is the Sum of the files that Load reads; of those that cannot be read it has the reason. For a pipe, which can
// be read only once, it has the name.
func SumOf(paths []string) Sum {
	h := sha256.New()
	files, err := Files(paths)
	fmt.Fprintln(h, err)
	for _, file := range files {
		var text []byte
		info, err := os.Stat(file)
		if err == nil && info.Mode().IsRegular() {
			text, err = read(file, maxBytes)
		}
		fmt.Fprintln(h, file, len(text), err)
		h.Write(text)
	}
	return Sum(h.Sum(nil))
}

// Watch calls changed when the files that Load reads hold something else than before, at first than seen, until ctx ends. Errors: a folder
// that is there and cannot be watched.
func Watch(ctx context.Context, paths []string, seen Sum, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	if err := add(w, paths); err != nil {
		return err
	}
	look := func() {
		if current := SumOf(paths); current != seen {
			seen = current
			changed()
		}
	}
	look()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var due <-chan time.Time
	var latest time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events:
			if due == nil {
				latest = time.Now().Add(maxSettle)
			}
			due = time.After(min(settle, time.Until(latest)))
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) { // after an overflow the next look finds what was not reported
				return err
			}
		case <-due:
			due = nil
			look()
		case <-tick.C:
			_ = add(w, paths)
			if due == nil {
				look()
			}
		}
	}
}

// add watches the folders of the files: editors replace a file. It may be called again.
func add(w *fsnotify.Watcher, paths []string) error {
	var errs []error
	for _, path := range paths {
		err := w.Add(folderOf(path))
		if errors.Is(err, syscall.ENOSPC) { // inotify(7); the disk has nothing to do with it
			err = fmt.Errorf("%s cannot be watched: raise fs.inotify.max_user_watches (sysctl)", path)
		}
		if !errors.Is(err, fs.ErrNotExist) { // what is away is tried again
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func folderOf(path string) string {
	if files, err := Files([]string{path}); err == nil && len(files) == 1 && files[0] == path {
		return filepath.Dir(path)
	}
	return path
}
