// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// folderUploads holds what is known of entries that are half sent.
const folderUploads = "uploads"

// Note keeps a short text with an entry until it is done: where to go on with it.
// An empty text removes it. A power cut may lose it, and then the entry is sent
// from its beginning.
func (q *Queue) Note(e Entry, text string) error {
	path := q.path(folderUploads, e.File())
	if text == "" {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	temporary := q.path(folderIncoming, "note-"+e.File())
	if err := os.WriteFile(temporary, []byte(text), 0o640); err != nil {
		return err
	}
	return rename(temporary, path)
}

// Noted returns what Note kept; "" if there is nothing.
func (q *Queue) Noted(e Entry) (string, error) {
	text, err := os.ReadFile(q.path(folderUploads, e.File()))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}
