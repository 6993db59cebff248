// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// fileWatched lists the folders from which the queue has taken files: a line for each, quoted as in
// Go.
const fileWatched = "watched"

// Watched returns what says whether the queue in a folder has watched another one before, with a person's word where one was needed. Queues of
// versions that wrote no list have watched all.
func Watched(dir string) (func(folder string) bool, error) {
	if _, err := os.Stat(filepath.Join(dir, fileFormat)); errors.Is(err, fs.ErrNotExist) {
		return func(string) bool { return false }, nil
	}
	text, err := os.ReadFile(filepath.Join(dir, fileWatched))
	if errors.Is(err, fs.ErrNotExist) {
		return func(string) bool { return true }, nil
	}
	if err != nil {
		return nil, err
	}
	known := strings.Split(string(text), "\n")
	return func(folder string) bool {
		line, err := watchedLine(folder)
		return err == nil && slices.Contains(known, line)
	}, nil
}

func watchedLine(folder string) (string, error) {
	whole, err := filepath.Abs(folder)
	return strconv.Quote(whole), err
}

// NoteWatched writes down that the queue takes files of folders.
func (q *Queue) NoteWatched(folders []string) error {
	if len(folders) == 0 {
		return nil
	}
	text, err := os.ReadFile(q.path(fileWatched))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines, known := string(text), strings.Split(string(text), "\n")
	for _, folder := range folders {
		line, err := watchedLine(folder)
		if err != nil {
			return err
		}
		if !slices.Contains(known, line) {
			lines += line + "\n"
		}
	}
	if lines == string(text) && err == nil {
		return nil
	}
	return q.writeFile(fileWatched, []byte(lines))
}
