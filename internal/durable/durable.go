// SPDX-License-Identifier: Apache-2.0

// Package durable replaces files so that a power cut leaves the old one or the new one.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// PartSuffix ends the name of a file that is being written. It is always the same: a
// file has one writer, and what a process left that was killed is written over.
const PartSuffix = ".part"

// Replace writes a file beside path, gives it that name, and makes the name last. The
// folder must exist. After an error path is as it was, or has the new content.
func Replace(path string, data []byte, mode os.FileMode) error {
	part := path + PartSuffix
	err := write(part, data, mode)
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		return errors.Join(err, Remove(part))
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes the names in a folder survive a power cut.
func SyncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func write(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// Remove removes a file that may be gone already.
func Remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
