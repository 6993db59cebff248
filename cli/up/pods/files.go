// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// prepare makes the folders of a pod that is to be started.
func (p *pod) prepare() error {
	for _, dir := range p.emptied {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	for _, dir := range p.folders {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return p.writeFiles()
}

// writeFiles brings what is mounted of Secrets up to date. A program reads the old content of a file, or the new one.
func (p *pod) writeFiles() error {
	for path, data := range p.files {
		if stored, err := os.ReadFile(path); err == nil && bytes.Equal(stored, data) {
			continue
		}
		unfinished := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".unfinished")
		if err := errors.Join(os.WriteFile(unfinished, data, 0o600), os.Rename(unfinished, path)); err != nil {
			return err
		}
	}
	return p.removeFiles()
}

// removeFiles removes files of keys that are gone.
func (p *pod) removeFiles() error {
	mounted := map[string]bool{}
	for path := range p.files {
		mounted[filepath.Dir(path)] = true
	}
	for dir := range mounted {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if _, stays := p.files[path]; stays {
				continue
			}
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// nodeName is this machine's name.
func nodeName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}
