// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"io/fs"
	"os"
)

// folderNames holds the names of entries that are longer than the names of their files may be.
const folderNames = "names"

// Whole returns what Source.Whole was; empty: Entry.Name is whole.
func (q *Queue) Whole(e Entry) (string, error) {
	name, err := os.ReadFile(q.path(folderNames, e.File()))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(name), err
}

// keepName keeps the whole name of an entry, if it has one. It is called before the entry's bytes are in the queue: no power
// cut leaves an entry without its name.
func (q *Queue) keepName(e Entry, name string) error {
	if name == "" {
		return nil
	}
	temporary := q.path(folderIncoming, "name-"+e.File())
	if err := q.writeSynced(temporary, []byte(name)); err != nil {
		return err
	}
	if err := rename(temporary, q.path(folderNames, e.File())); err != nil {
		return err
	}
	return q.sync(q.path(folderNames))
}

// forgetName removes the name of an entry that is done.
func (q *Queue) forgetName(e Entry) error { return discard(q.path(folderNames, e.File())) }

// forgetNames removes names of entries that are not in the queue: their bytes did not come, or a power cut brought the names back.
func (q *Queue) forgetNames() error {
	files, err := os.ReadDir(q.path(folderNames))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		there := false
		for _, folder := range []string{folderObjects, Refused, Damaged} {
			if _, err := os.Lstat(q.path(folder, f.Name())); !errors.Is(err, fs.ErrNotExist) {
				there = true
			}
		}
		if !there {
			err = errors.Join(err, discard(q.path(folderNames, f.Name())))
		}
	}
	return err
}
