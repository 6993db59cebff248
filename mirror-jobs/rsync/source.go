// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/bound"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

// Source is a folder at the other side as a tree.Source: rsync lists it, and fetches what is asked for into a staging folder.
type Source struct{ *Mover }

// Walk implements tree.Source. The list goes to the disk first: rsync ends if its output is not read.
func (s Source) Walk(ctx context.Context, visit func(tree.Folder) error) error {
	list, err := os.CreateTemp(s.cfg.Scratch, "list-*")
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(list.Close(), os.Remove(list.Name())) }()
	failed, err := s.list(ctx, list)
	v := &treeLister{Source: s, limits: s.cfg.Limits.OrDefault(), visit: visit}
	if err != nil && !bound.Is(err) {
		return err
	}
	if err != nil {
		v.refused.Add(err)
	}
	if _, err := list.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := v.all(list); err != nil {
		return err
	}
	if err := v.refused.Err(); err != nil || !failed.some {
		return err
	}
	return fmt.Errorf("%w: rsync says %s", tree.ErrUnlisted, firstLine(failed.said))
}

// list has rsync write the list of all files; of one that is too long, the beginning, with a *bound.Error.
func (s Source) list(ctx context.Context, to io.Writer) (failures, error) {
	refusal := bound.Error{List: bound.RsyncList, Object: "the list of the files at " + s.target(), Step: "make a MirrorPartner for each of the folders that are wanted"}
	return s.runBounded(ctx, nil, to, cmp.Or(s.cfg.List, maxList), refusal, "--list-only", "--no-human-readable", "--no-links", s.target())
}

// runBounded runs rsync, and ends it once it wrote more than may be kept. The error is a *bound.Error then, and to has the whole lines before.
func (m *Mover) runBounded(ctx context.Context, input []byte, to io.Writer, most int64, refusal bound.Error, arguments ...string) (failures, error) {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	failed, err := m.run(running, input, &limited{to, most, func() {
		refusal.Limit = fmt.Sprintf("%d bytes", most)
		stop(&refusal)
	}}, arguments...)
	if cause := context.Cause(running); bound.Is(cause) {
		return failures{}, cause
	}
	return failed, err
}

// errLimited ends a write beyond the limit.
var errLimited = errors.New("more than may be kept")

// limited passes on what is written, up to some bytes; then it stops who writes.
type limited struct {
	io.Writer
	left int64
	stop func()
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if int64(len(p)) > l.left {
		if end := bytes.LastIndexByte(p[:l.left], '\n'); end >= 0 {
			_, _ = l.Writer.Write(p[:end+1]) // what it lacks is not listed
		}
		l.left = 0
		l.stop()
		return 0, errLimited
	}
	n, err := l.Writer.Write(p)
	l.left -= int64(n)
	return n, err
}

// treeLister passes what a list has on, folder by folder.
type treeLister struct {
	Source
	limits  tree.Limits
	visit   func(tree.Folder) error
	refused tree.Refusals
	// badNames counts those of the folder that is passed on next.
	badNames *bound.List
}

// all reads a list.
func (v *treeLister) all(list io.Reader) error {
	var f tree.Folder
	folders, files := v.limits.FoldersOf(v.target()), v.limits.FilesOf("")
	passed := false // the files of this folder are not kept
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		file, is := listed(lines.Text())
		if !is {
			continue
		}
		if wire.CheckSentName(file.Path) != nil {
			v.addBadName(&f, file.Path)
			continue
		}
		if of := folderOf(file.Path); of != f.Path {
			if err := v.pass(f); err != nil {
				return err
			}
			f, files = tree.Folder{Path: of}, v.limits.FilesOf(of)
			if passed = !v.take(of, folders); passed {
				continue
			}
		}
		if passed {
			continue
		}
		if err := files.Add(1, tree.Size(file.Path, file.Mark)); err != nil {
			v.refused.Add(err)
			passed = true
			continue
		}
		f.Files = append(f.Files, file)
	}
	if err := v.pass(f); err != nil {
		return err
	}
	if err := lines.Err(); err != nil { // the files before come
		return fmt.Errorf("%w: the list of the other side cannot be read to its end: %w", tree.ErrUnlisted, err)
	}
	return nil
}

// addBadName notes the path of a file that no object can have as its name.
func (v *treeLister) addBadName(f *tree.Folder, name string) {
	if len(f.BadNames) == 0 {
		v.badNames = v.limits.FilesOf(f.Path)
	}
	if err := v.badNames.Add(1, tree.Size(name)); err != nil {
		v.refused.Add(err)
		return
	}
	f.BadNames = append(f.BadNames, name)
}

// take says whether the files of a folder are taken.
func (v *treeLister) take(folder string, folders *bound.List) bool {
	err := v.limits.CheckDepth(folder)
	if err == nil {
		err = folders.Add(1, 0) // no folder waits
	}
	if err != nil {
		v.refused.Add(err)
	}
	return err == nil
}

func (v *treeLister) pass(f tree.Folder) error {
	if len(f.Files)+len(f.BadNames) == 0 {
		return nil
	}
	return v.visit(f)
}

func folderOf(name string) string {
	if dir := path.Dir(name); dir != "." {
		return dir
	}
	return ""
}

// listed reads a line of rsync --list-only: mode, size, date, time, name. False: it is no file.
func listed(line string) (plan.File, bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 || !strings.HasPrefix(fields[0], "-") {
		return plan.File{}, false
	}
	size, err := strconv.ParseInt(strings.ReplaceAll(fields[1], ",", ""), 10, 64)
	_, name, found := strings.Cut(line, fields[2]+" "+fields[3]+" ")
	name = unescaped(name)
	if err != nil || size < 0 || !found {
		return plan.File{}, false
	}
	return plan.File{Path: name, Size: size, Mark: fields[1] + " " + fields[2] + " " + fields[3]}, true
}

// roomOf is how large a file that was listed with a size may be by now: one that grows comes nevertheless. The sizes in the list are only
// claimed by the other side, and rsync is configured not to fetch more.
func roomOf(size int64) int64 { return 2*size + 512<<10 }

// Fetch implements tree.Source. Files that are fetched at once take no more than twice maxBytes, whatever the other side sends, or are one.
func (s Source) Fetch(ctx context.Context, files []tree.Wanted, take func(int, tree.Got) error) error {
	for begin := 0; begin < len(files); {
		end, largest := begin, int64(0)
		for end < len(files) && end-begin < maxFiles {
			size := min(max(largest, files[end].Size), math.MaxInt64/4)
			if end > begin && roomOf(size) > 2*maxBytes/int64(end-begin+1) {
				break
			}
			largest = size
			end++
		}
		if err := s.fetch(ctx, files[begin:end], roomOf(largest), func(i int, got tree.Got) error { return take(begin+i, got) }); err != nil {
			return err
		}
		begin = end
	}
	return s.empty()
}

// fetch fetches some at once, of at most so many bytes each.
func (s Source) fetch(ctx context.Context, files []tree.Wanted, most int64, take func(int, tree.Got) error) error {
	if err := s.empty(); err != nil {
		return err
	}
	stop := s.coming(files)
	failed, err := s.fetchStaged(ctx, files, most)
	stop()
	if err != nil {
		return err
	}
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = f.Path
	}
	named, rest := failed.byPath(paths)
	for i, f := range files {
		name := s.staged(f)
		got := tree.Got{Seen: tree.Seen{Mark: f.Mark}, Open: func() (io.ReadCloser, error) { return os.Open(name) }}
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
			if got.Size = info.Size(); tooLarge(f, got.Size) {
				got.Err = tree.ErrTooLarge
			}
		} else if tooLarge(f, f.Size) {
			got.Err = tree.ErrTooLarge
		} else if why := cmp.Or(named[f.Path], rest); why != "" {
			got.Err = errors.New(why)
		} else {
			got.Err = errors.New("it is not there any more, or has become much larger: the next run looks again")
		}
		if err := take(i, got); err != nil {
			return err
		}
	}
	return nil
}

// fetchStaged has rsync fetch files into the staging folder. It asks a daemon for them from the module on: asked for a folder below
// it, rsync 3.5.0 finds the files and then says that they vanished.
func (s Source) fetchStaged(ctx context.Context, files []tree.Wanted, most int64) (failures, error) {
	whole := *s.Mover
	if d := s.cfg.Daemon; d != nil {
		whole.cfg.Daemon = new(wire.MirrorRsyncDaemon)
		*whole.cfg.Daemon = *d
		whole.cfg.Daemon.Path = ""
	}
	var paths []string
	largest := int64(0)
	for _, f := range files {
		if !tooLarge(f, f.Size) {
			paths = append(paths, path.Join(s.prefix(), f.Path))
			largest = max(largest, cmp.Or(f.Most, most))
		}
	}
	if len(paths) == 0 {
		return failures{}, nil
	}
	return s.run(ctx, list(paths), nil, "--no-links", "--max-size="+strconv.FormatInt(min(most, largest), 10)+"b", "--files-from=-", "--from0", whole.target(), s.stage()+"/")
}

// tooLarge says whether a file of a size is larger than an object may be.
func tooLarge(f tree.Wanted, size int64) bool { return f.Most > 0 && size > f.Most }

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
