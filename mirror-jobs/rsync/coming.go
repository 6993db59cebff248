// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/substorm/substorm/mirror-jobs/tree"
)

const (
	// countEvery is how often it is looked at how much has come, and countFrom the size from which on a file counts before it is whole.
	countEvery = 2 * time.Second
	countFrom  = 1 << 20
	// suffix is the length of what rsync appends to the name of a file that is not whole: .<name>.XXXXXX
	suffix = len(".XXXXXX")
)

// coming counts the bytes of large files while rsync writes them into the staging folder, until stop is called.
func (s Source) coming(files []tree.Wanted) (stop func()) {
	folders := map[string]map[string]int{} // the indexes of large files by folder and name
	for i, f := range files {
		if f.Moving == nil || f.Size < countFrom || tooLarge(f, f.Size) {
			continue
		}
		dir, name := filepath.Split(s.staged(f))
		if folders[dir] == nil {
			folders[dir] = map[string]int{}
		}
		folders[dir][name] = i
	}
	if len(folders) == 0 {
		return func() {}
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		look := time.NewTicker(countEvery)
		defer look.Stop()
		counted := map[int]int64{}
		for {
			select {
			case <-ended:
				return
			case <-look.C:
				for dir, names := range folders {
					count(dir, names, files, counted)
				}
			}
		}
	}()
	return func() { close(ended); <-done }
}

// count counts what is new of the files of a folder.
func count(dir string, names map[string]int, files []tree.Wanted, counted map[int]int64) {
	there, err := os.ReadDir(dir)
	if err != nil {
		return // it is not there yet
	}
	for _, entry := range there {
		i, found := names[entry.Name()]
		if hidden, partial := strings.CutPrefix(entry.Name(), "."); !found && partial && len(hidden) > suffix {
			i, found = names[hidden[:len(hidden)-suffix]]
		}
		if !found {
			continue
		}
		if info, err := entry.Info(); err == nil && info.Size() > counted[i] {
			files[i].Moving.Move(info.Size() - counted[i])
			counted[i] = info.Size()
		}
	}
}
