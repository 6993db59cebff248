// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

// maxLine is the longest line that --lines sends, in bytes.
const maxLine = 64 << 20

// stdinName stands for standard input on the command line and in reports.
const stdinName = "-"

// item is one thing to send. It can be opened as often as it must be sent.
type item struct {
	name string
	path string // of a file that stays as it is
	// rel is the path below the folder that was named, or the file's own name.
	rel  string
	size int64 // in bytes; -1 if it is known only at the end
	open func() (io.ReadCloser, error)
	// check, if set, returns an error for bytes with a wrong digest: then their end is never sent.
	check func(wire.Digest) error
	// connectWithin is how long a server may take to accept; 0 is what the run says.
	connectWithin time.Duration
	// sentName is what the object is called over HTTP; "" without a name.
	sentName string
	// resumption of the object's upload over HTTP.
	resumption *resumption
}

// checkUnchanged returns an error if the bytes that were read are wrong.
func (it item) checkUnchanged(digest wire.Digest) error {
	if it.check == nil {
		return nil
	}
	return it.check(digest)
}

// input is what the command line names.
type input struct {
	paths []string
	lines bool
	stdin io.Reader
	// blank is called for each empty line that is passed over.
	blank func()
	// temporary is called for each file that is to be removed in the end.
	temporary func(name string)
	// ignores, if set, reports which files are left out.
	ignores func(item) bool
}

// check finds what is missing before anything is sent.
func (in input) check() error {
	if len(in.paths) == 0 {
		return usage.Errorf("nothing to send: name files or folders, or - for standard input")
	}
	stdins := 0
	for _, path := range in.paths {
		if path == stdinName {
			if stdins++; stdins > 1 {
				return usage.Errorf("standard input (-) can be read only once")
			}
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("nothing is sent: %w", err)
		}
		if !info.IsDir() && !info.Mode().IsRegular() {
			return fmt.Errorf("nothing is sent: %s is neither a file nor a folder; to send its output, use - (standard input)", path)
		}
	}
	return nil
}

// items yields everything to send, folders in the order of their names. After
// an error it ends.
func (in input) items() iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for _, path := range in.paths {
			if !in.path(path, yield) {
				return
			}
		}
	}
}

func (in input) path(path string, yield func(item, error) bool) bool {
	switch {
	case path == stdinName && in.lines:
		return in.eachLine(stdinName, in.stdin, yield)
	case path == stdinName:
		return in.wholeStdin(yield)
	}
	for file, err := range files(path) {
		if err != nil {
			return yield(item{}, err)
		}
		if in.lines {
			if !in.linesOf(file.name, yield) {
				return false
			}
		} else if !yield(file, nil) {
			return false
		}
	}
	return true
}

// walkRoot is a path as filepath.WalkDir takes it to follow a link to a folder that is named itself.
func walkRoot(path string) string {
	if info, err := os.Stat(path); err != nil || !info.IsDir() || os.IsPathSeparator(path[len(path)-1]) {
		return path
	}
	return path + string(filepath.Separator)
}

// files yields the regular files at or under path, in lexical order. Symbolic links to files are
// followed, those to folders only where they are the path. After an error it continues with the
// files that can be read.
func files(path string) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		failed := func(err error) error {
			if !yield(item{}, fmt.Errorf("read %s: %w", path, err)) {
				return fs.SkipAll
			}
			return nil
		}
		_ = filepath.WalkDir(walkRoot(path), func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return failed(err)
			}
			if entry.IsDir() {
				return nil
			}
			info, err := os.Stat(name)
			if err != nil {
				return failed(err)
			}
			if !info.Mode().IsRegular() {
				return nil
			}
			file := fileItem(name, info.Size())
			if rel, err := filepath.Rel(path, name); err == nil && rel != "." {
				file.rel = rel
			}
			if !yield(file, nil) {
				return fs.SkipAll
			}
			return nil
		})
	}
}

func fileItem(name string, size int64) item {
	return item{name: name, path: name, rel: filepath.Base(name), size: size, open: func() (io.ReadCloser, error) { return os.Open(name) }}
}

func (in input) linesOf(name string, yield func(item, error) bool) bool {
	f, err := os.Open(name)
	if err != nil {
		return yield(item{}, err)
	}
	defer f.Close()
	return in.eachLine(name, f, yield)
}

// eachLine yields each line without its LF or CRLF.
func (in input) eachLine(name string, r io.Reader, yield func(item, error) bool) bool {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	number := 0
	for lines.Scan() {
		number++
		if len(lines.Bytes()) == 0 {
			in.blank()
			continue
		}
		if !yield(memoryItem(name+":"+strconv.Itoa(number), bytes.Clone(lines.Bytes())), nil) {
			return false
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return yield(item{}, fmt.Errorf("line %d of %s is longer than %d bytes: send it as a file", number+1, name, maxLine))
	} else if err != nil {
		return yield(item{}, fmt.Errorf("read %s: %w", name, err))
	}
	return true
}

func memoryItem(name string, data []byte) item {
	return item{name: name, size: int64(len(data)), open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}
}

// wholeStdin keeps standard input in a temporary file, so that it can be sent again.
func (in input) wholeStdin(yield func(item, error) bool) bool {
	f, err := os.CreateTemp("", "substorm-send-*")
	if err != nil {
		return yield(item{}, fmt.Errorf("keep standard input: %w", err))
	}
	in.temporary(f.Name())
	size, err := io.Copy(f, in.stdin)
	if err := errors.Join(err, f.Close()); err != nil {
		return yield(item{}, fmt.Errorf("keep standard input in %s: %w", f.Name(), err))
	}
	kept := fileItem(f.Name(), size)
	kept.name, kept.path, kept.rel = stdinName, "", ""
	return yield(kept, nil)
}
