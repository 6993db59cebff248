// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

// Source is a folder at the other side as a tree.Source: rsync lists it, and fetches what is asked for into a staging folder.
type Source struct{ *Mover }

// Walk implements tree.Source. The list goes to the disk first: rsync ends where nobody reads what it says.
func (s Source) Walk(ctx context.Context, visit func(tree.Folder) error) error {
	list, err := os.CreateTemp(s.cfg.Scratch, "list-*")
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(list.Close(), os.Remove(list.Name())) }()
	failed, err := s.run(ctx, nil, list, "--list-only", "--no-human-readable", "--no-links", s.target())
	if err != nil {
		return err
	}
	if _, err := list.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := s.visit(list, visit); err != nil || !failed.some {
		return err
	}
	return fmt.Errorf("%w: rsync says %s", tree.ErrUnlisted, firstLine(failed.said))
}

// visit passes what a list has on, folder by folder.
func (s Source) visit(list io.Reader, visit func(tree.Folder) error) error {
	var f tree.Folder
	for lines := bufio.NewScanner(list); ; {
		more := lines.Scan()
		file, is := listed(lines.Text())
		if !more {
			if err := lines.Err(); err != nil || len(f.Files) == 0 {
				return err
			}
			return visit(f)
		}
		if !is {
			continue
		}
		if of := folderOf(file.Path); of != f.Path {
			if err := s.pass(f, visit); err != nil {
				return err
			}
			f = tree.Folder{Path: of}
		}
		f.Files = append(f.Files, file)
	}
}

func (s Source) pass(f tree.Folder, visit func(tree.Folder) error) error {
	if len(f.Files) == 0 {
		return nil
	}
	return visit(f)
}

func folderOf(name string) string {
	if dir := path.Dir(name); dir != "." {
		return dir
	}
	return ""
}

// listed reads a line of rsync --list-only: mode, size, date, time, name. False: it is no file, or one whose name no object can
// have.
func listed(line string) (plan.File, bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 || !strings.HasPrefix(fields[0], "-") {
		return plan.File{}, false
	}
	size, err := strconv.ParseInt(strings.ReplaceAll(fields[1], ",", ""), 10, 64)
	_, name, found := strings.Cut(line, fields[2]+" "+fields[3]+" ")
	name = unescaped(name)
	if err != nil || !found || wire.CheckSentName(name) != nil {
		return plan.File{}, false
	}
	return plan.File{Path: name, Size: size, Mark: fields[1] + " " + fields[2] + " " + fields[3]}, true
}

// Fetch implements tree.Source.
func (s Source) Fetch(ctx context.Context, files []tree.Wanted, take func(int, tree.Got) error) error {
	for begin := 0; begin < len(files); {
		end, sum := begin, int64(0)
		for end < len(files) && (end == begin || sum+files[end].Size <= mostBytes && end-begin < mostFiles) {
			sum += files[end].Size
			end++
		}
		if err := s.fetch(ctx, files[begin:end], func(i int, got tree.Got) error { return take(begin+i, got) }); err != nil {
			return err
		}
		begin = end
	}
	return s.empty()
}

// fetch fetches some at once.
func (s Source) fetch(ctx context.Context, files []tree.Wanted, take func(int, tree.Got) error) error {
	if err := s.empty(); err != nil {
		return err
	}
	failed, err := s.into(ctx, files)
	if err != nil {
		return err
	}
	for i, f := range files {
		name := s.staged(f)
		got := tree.Got{Seen: tree.Seen{Mark: f.Mark}, Open: func() (io.ReadCloser, error) { return os.Open(name) }}
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
			got.Size = info.Size()
		} else if why, is := failed.of(f.Path); is {
			got.Err = errors.New(why)
		} else {
			got.Err = errors.New("it is not there any more: the next run looks again")
		}
		if err := take(i, got); err != nil {
			return err
		}
	}
	return nil
}

// into has rsync fetch files into the staging folder. Of a daemon it asks for them from the module on: asked for a folder below
// it, rsync 3.5.0 finds the files and then says that they vanished.
func (s Source) into(ctx context.Context, files []tree.Wanted) (failures, error) {
	whole := *s.Mover
	if d := s.cfg.Daemon; d != nil {
		whole.cfg.Daemon = new(wire.MirrorRsyncDaemon)
		*whole.cfg.Daemon = *d
		whole.cfg.Daemon.Path = ""
	}
	var list bytes.Buffer
	for _, f := range files {
		list.WriteString(path.Join(s.prefix(), f.Path) + "\x00")
	}
	return s.run(ctx, list.Bytes(), nil, "--no-links", "--files-from=-", "--from0", whole.target(), s.stage()+"/")
}

// prefix stands before a file's path in the staging folder.
func (s Source) prefix() string {
	if d := s.cfg.Daemon; d != nil {
		return d.Path
	}
	return ""
}

// staged is where a file is once it has come whole.
func (s Source) staged(f tree.Wanted) string {
	return filepath.Join(s.stage(), s.prefix(), filepath.FromSlash(f.Path))
}
