// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/substorm/substorm/internal/durable"
	"github.com/substorm/substorm/internal/objectstore"
)

// formatVersion is the version of what lies in the data folder, and how.
const formatVersion = 1

// firstYear: a clock before it was never set.
const firstYear = 2025

// lockName is the file that the process which has the folder holds a lock on, and that names it.
const lockName = "lock"

// folder is the data folder of one process.
type folder struct {
	path string
	lock *os.File
}

// openFolder makes the data folder if it does not exist, and locks it for this process. Errors: another process has it, it cannot be
// written, a newer version wrote it.
func openFolder(path string) (*folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w: name another with --data-dir, or create %s as a user who may", err, path)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w: substorm must be able to write there", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid, _ := os.ReadFile(filepath.Join(path, lockName))
		_ = lock.Close()
		return nil, fmt.Errorf("data folder %s is in use by another substorm up (process %s): stop it first, or name another folder with --data-dir",
			path, strings.TrimSpace(string(pid)))
	}
	f := &folder{path, lock}
	err = f.writePID()
	if err == nil {
		err = f.noteFormat()
	}
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return f, nil
}

func (f *folder) writePID() error {
	if err := f.lock.Truncate(0); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if _, err := f.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

// noteFormat notes the version in a folder that is new. In one that is not, it looks for the archive.
func (f *folder) noteFormat() error {
	version, err := Format(f.path)
	if err != nil {
		return err
	}
	archive := f.in("objects", archiveBucket)
	if version > 0 {
		return archiveStands(archive)
	}
	// Before the version: a folder that has one had an archive.
	store, err := objectstore.Open(objectstore.Config{Endpoint: objectstore.FolderEndpoint(f.in("objects")), Bucket: archiveBucket})
	if err == nil {
		_, err = store.EnsureBucket(context.Background())
	}
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if err := durable.Replace(formatFile(f.path), []byte(strconv.Itoa(formatVersion)+"\n"), 0o600); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

// archiveStands returns an error if the archive does not exist: a new one would be empty, receive data, and hide the old one when its
// disk is back.
func archiveStands(path string) error {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the archive %s is gone: mount its disk, or bring the folder back; to begin with an empty archive, make the folder", path)
	}
	return err
}

func formatFile(folder string) string { return filepath.Join(folder, "format") }

// Format is the version of what lies in a data folder, 0 where it is new. Errors: this program cannot use it.
func Format(folder string) (int, error) {
	file := formatFile(folder)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("data folder: %w", err)
	}
	version, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || version < 1 {
		return 0, fmt.Errorf("%s holds %q, which is not a version: restore it; this substorm writes %d there", file, text, formatVersion)
	}
	if version > formatVersion {
		return 0, fmt.Errorf("data folder %s was written by a newer substorm (format %d, this one knows %d): start that version, or name another folder with --data-dir",
			folder, version, formatVersion)
	}
	return version, nil
}

// in is the path of something in the folder.
func (f *folder) in(names ...string) string {
	return filepath.Join(append([]string{f.path}, names...)...)
}

func (f *folder) close() { _ = f.lock.Close() }

// CheckClock refuses a clock that was never set: keys, days and retention go by it.
func CheckClock(now time.Time) error {
	if now.Year() < firstYear {
		return fmt.Errorf("the clock says %s: set it before data is received, which is kept by the time of its receipt", now.UTC().Format(time.RFC3339))
	}
	return nil
}
