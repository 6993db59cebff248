// SPDX-License-Identifier: Apache-2.0

package natsserver

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A stream's messages lie in blocks, files that the server appends records to: a length of 4 bytes, whose highest bit says that there are
// headers, a sequence of 8, whose two highest bits mark what is no message, a time, and the rest. All are little-endian.
const (
	messages       = "msgs"
	blockExtension = ".blk"
	recordHead     = 12
	minRecord      = 30
	headersBit     = 1 << 31
	sequenceMask   = 1<<62 - 1
)

// The files of a stream's configuration, beside the folder of its messages.
const configuration, checksum = "meta.inf", "meta.sum"

// file is one as it was when it was looked at.
type file struct {
	size    int64
	changed time.Time
}

// filesOf are the files of a stream that a power cut must not take, by path.
func filesOf(dir string) (map[string]file, error) {
	blocks, err := blocksOf(filepath.Join(dir, messages))
	if err != nil {
		return nil, err
	}
	files := map[string]file{}
	for path, b := range blocks {
		files[path] = b.file
	}
	for _, name := range []string{configuration, checksum} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		files[filepath.Join(dir, name)] = file{info.Size(), info.ModTime()}
	}
	return files, nil
}

// block is the file of one, and its number.
type block struct {
	file
	number int
}

// blocksOf are the blocks in a folder, by path.
func blocksOf(dir string) (map[string]block, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	blocks := map[string]block{}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), blockExtension)
		number, err := strconv.Atoi(name)
		if !ok || err != nil {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // the stream was trimmed
		}
		if err != nil {
			return nil, err
		}
		blocks[filepath.Join(dir, e.Name())] = block{file{info.Size(), info.ModTime()}, number}
	}
	return blocks, nil
}

// newest returns the paths of blocks, the newest first.
func newest(blocks map[string]block) []string {
	paths := make([]string, 0, len(blocks))
	for path := range blocks {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Compare(blocks[b].number, blocks[a].number) })
	return paths
}

// tail is how far a block was read, and the highest sequence in it.
type tail struct {
	path    string
	next    int64
	highest uint64
}

// read reads on to the end of the last record that is whole.
func (t *tail) read(path string, size int64) error {
	if t.path != path || size < t.next {
		*t = tail{path: path}
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for head := [recordHead]byte{}; t.next+minRecord <= size; {
		if _, err := f.ReadAt(head[:], t.next); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		length := int64(binary.LittleEndian.Uint32(head[:]) &^ headersBit)
		if length < minRecord {
			return fmt.Errorf("%s has a record of %d bytes at %d: the format is unknown", path, length, t.next)
		}
		if t.next+length > size {
			return nil
		}
		t.highest = max(t.highest, binary.LittleEndian.Uint64(head[4:])&sequenceMask)
		t.next += length
	}
	return nil
}
