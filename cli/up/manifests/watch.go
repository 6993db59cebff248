// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long files are left alone before they are read: an editor writes, renames and removes.
const settle = 300 * time.Millisecond

// Watch calls changed after each change of the files that Load reads, until ctx ends. Errors: a folder that cannot be watched.
func Watch(ctx context.Context, paths []string, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	for _, path := range paths {
		// The folder of a file, since editors replace the file.
		if err := w.Add(folderOf(path)); err != nil {
			return err
		}
	}
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-w.Events:
			if !open {
				return nil
			}
			due = time.After(settle)
		case err := <-w.Errors:
			return err
		case <-due:
			due = nil
			changed()
		}
	}
}

func folderOf(path string) string {
	if files, err := Files([]string{path}); err == nil && len(files) == 1 && files[0] == path {
		return filepath.Dir(path)
	}
	return path
}
