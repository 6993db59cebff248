// SPDX-License-Identifier: Apache-2.0

// Package rsync gets files to a partner by rsync, to a daemon or over ssh. A staging folder
// has the files that are owed, and nothing else; rsync compares their sizes and times with what
// the partner has, and gives a file its name there once it is whole.
package rsync

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/bound"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

const (
	// maxFiles and maxBytes are staged at once.
	maxFiles = 10_000
	maxBytes = 1 << 30
	// connectSeconds and silentSeconds are how long the other side may take to answer, and be
	// silent.
	connectSeconds, silentSeconds = 20, 120
	// maxList bounds the list of a folder that is pulled, in bytes of the disk: some ten million files.
	maxList = 1 << 30
	// answerOfEach and answerOfAll bound what rsync writes while it sends, in bytes for each file, beside four for each of its name, and for all:
	// the other side may say something of each file.
	answerOfEach, answerOfAll = 256, 1 << 20
	// maxSaid bounds what is kept of what rsync says on standard error.
	maxSaid = 4 << 20
)

// Config says where to.
type Config struct {
	wire.MirrorRsync
	// Credentials is the folder with wire.MirrorFile….
	Credentials string
	// Scratch is a folder of the mover's own.
	Scratch string
	// BytesPerSecond at most; 0: no limit.
	BytesPerSecond func() int64
	// List bounds the list of a folder that is pulled, in bytes; 0: 1 GiB. Limits are those of what is kept of it.
	List   int64
	Limits tree.Limits
	// Greeting is how long the other side may take until it has agreed on a protocol; 0: 5 minutes.
	Greeting time.Duration
	// Program is rsync's; empty: the first one in PATH.
	Program string
}

// Mover is a push.Mover.
type Mover struct{ cfg Config }

// New returns a mover. Its scratch folder is emptied.
func New(cfg Config) (*Mover, error) {
	if cfg.Program == "" {
		program, err := exec.LookPath("rsync")
		if err != nil {
			return nil, fmt.Errorf("install rsync: %w", err)
		}
		cfg.Program = program
	}
	m := &Mover{cfg}
	return m, errors.Join(m.empty(), m.configure())
}

func (m *Mover) stage() string { return filepath.Join(m.cfg.Scratch, "stage") }

func (m *Mover) empty() error {
	if err := os.RemoveAll(m.stage()); err != nil {
		return err
	}
	return os.MkdirAll(m.stage(), 0o755)
}

// Most implements push.Mover.
func (m *Mover) Most() (files int, bytes int64) { return maxFiles, maxBytes }

// Deliver implements push.Mover.
func (m *Mover) Deliver(ctx context.Context, files []push.File, anew bool, ended func(int, error)) error {
	if err := m.empty(); err != nil {
		return err
	}
	at := make(map[string]int, len(files))
	for i, f := range files {
		switch err := m.put(ctx, f, at); {
		case err == nil:
			at[f.Path] = i
		case errors.Is(err, errPlace):
			ended(i, &push.Problem{Reason: wire.MirrorReasonInvalidTemplate, Err: err})
		case errors.Is(err, objectpath.ErrDamaged), errors.Is(err, objectstore.ErrNotFound):
			ended(i, err)
		default:
			return err
		}
	}
	if len(at) == 0 {
		return nil
	}
	compared := []string(nil)
	if slices.ContainsFunc(files, func(f push.File) bool { return f.Replaces || f.Aside != "" }) {
		compared = []string{"--checksum"}
	}
	groups := map[string][]string{} // by what sets other files aside
	for _, p := range slices.Sorted(maps.Keys(at)) {
		aside := files[at[p]].Aside
		if anew {
			aside = ""
		}
		groups[aside] = append(groups[aside], p)
	}
	for _, aside := range slices.Sorted(maps.Keys(groups)) {
		arguments := compared
		if anew {
			arguments = []string{"--ignore-times"}
		}
		if aside != "" {
			arguments = append(slices.Clone(arguments), "--backup", "--suffix="+aside)
		}
		if err := m.deliver(ctx, groups[aside], arguments, compared, func(p string, err error) { ended(at[p], err) }); err != nil {
			return err
		}
	}
	return nil
}

// deliver sends staged files with some arguments. Compared are those with which it is asked what the partner lacks, if some failed.
func (m *Mover) deliver(ctx context.Context, paths, arguments, compared []string, ended func(path string, err error)) error {
	moved, failed, err := m.send(ctx, paths, append(slices.Clone(arguments), "--partial-dir=.rsync-partial")...)
	if err != nil {
		return err
	}
	lacks := map[string]string{}
	if failed.some {
		if lacks, err = m.lacks(ctx, paths, failed, compared...); err != nil {
			return err
		}
	}
	setsAside := slices.Contains(arguments, "--backup")
	for _, p := range paths {
		how, sent := moved[p]
		switch why, is := lacks[p]; {
		case is:
			ended(p, &push.Problem{Reason: reasonOf(why), Answered: true, Err: errors.New(why)})
		case !sent:
			ended(p, push.ErrThere)
		case setsAside && !isNew(how):
			ended(p, push.ErrAside)
		default:
			ended(p, nil)
		}
	}
	return nil
}

// send has rsync send what is staged, and returns of each that it sends, or would, how it says so.
func (m *Mover) send(ctx context.Context, paths []string, arguments ...string) (how map[string]string, failed failures, err error) {
	var said bytes.Buffer
	most, names := int64(answerOfAll), list(paths)
	most += int64(4*len(names)) + int64(len(paths))*answerOfEach
	refusal := bound.Error{List: bound.RsyncAnswer, Object: "what rsync writes about the files at " + m.target(), Step: "ask the partner whether its rsync server writes messages for each file"}
	failed, err = m.runBounded(ctx, names, &said, most, refusal, append(slices.Clone(arguments), "--out-format=%i %n", "--files-from=-", "--from0", m.stage()+"/", m.target())...)
	if bound.Is(err) {
		err = &push.Problem{Reason: wire.MirrorReasonProtocol, Answered: true, Err: err}
	}
	return maps.Collect(sent(said.String())), failed, err
}

// lacks says which files the partner lacks after a run in which some failed, and why: those that rsync would send once more.
func (m *Mover) lacks(ctx context.Context, paths []string, failed failures, arguments ...string) (map[string]string, error) {
	how, again, err := m.send(ctx, paths, append(slices.Clone(arguments), "--dry-run")...)
	if err != nil {
		return nil, err
	}
	before, _ := failed.byPath(paths)
	lacks, rest := again.byPath(paths)
	for _, p := range paths {
		switch why, would := how[p]; {
		case before[p] != "" && (would || lacks[p] != ""):
			lacks[p] = before[p]
		case would:
			lacks[p] = whyOf(why) + ": rsync could not transfer some files: " + firstLine(failed.said)
		case lacks[p] == "" && rest != "":
			lacks[p] = rest
		}
	}
	return lacks, nil
}

// sent are the names of the files that rsync sends, and how it says so, of what it writes with --out-format="%i %n".
func sent(said string) iter.Seq2[string, string] {
	return func(yield func(name, how string) bool) {
		for line := range strings.Lines(said) {
			how, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if strings.HasPrefix(how, "<f") && !yield(unescaped(name), how) {
				return
			}
		}
	}
}

// list is what rsync reads with --files-from: without the ./ it takes a name that begins with # or ; for a comment.
func list(paths []string) []byte {
	var b bytes.Buffer
	for _, p := range paths {
		b.WriteString("./" + p + "\x00")
	}
	return b.Bytes()
}

// errPlace: a file cannot be staged beside another.
var errPlace = errors.New("its place at the partner is not free")

// put stages a file, if it is not staged yet: Verify mostly compares what was delivered just
// now. One whose bytes are not those of its digest is not staged, nor one that has the path of another of those staged now.
func (m *Mover) put(ctx context.Context, f push.File, with map[string]int) error {
	if _, taken := with[f.Path]; taken {
		return fmt.Errorf("%w: another object has the path %q", errPlace, f.Path)
	}
	name := filepath.Join(m.stage(), filepath.FromSlash(f.Path))
	if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && info.Size() == f.Size && info.ModTime().Equal(f.Modified) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return placeError(f.Path, err)
	}
	if f.Open == nil {
		return shape(name, f)
	}
	body, err := f.Open(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	out, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return placeError(f.Path, err)
	}
	_, err = io.Copy(out, body)
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Chtimes(name, f.Modified, f.Modified)
	}
	if err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// shape stages a file that has the size and time of another, and takes no space.
func shape(name string, f push.File) error {
	out, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return placeError(f.Path, err)
	}
	if err := errors.Join(out.Truncate(f.Size), out.Close()); err != nil {
		return err
	}
	return os.Chtimes(name, f.Modified, f.Modified)
}

// placeError is about a file for which there is no place beside the others.
func placeError(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%w: %q lies below another object's path, or above it: change spec.layout.template of the MirrorPartner", errPlace, path)
	case errors.Is(err, syscall.ENAMETOOLONG):
		return fmt.Errorf("%w: %w", errPlace, err)
	}
	return err
}

// Verify implements push.Mover: rsync says what it would send.
func (m *Mover) Verify(ctx context.Context, files []push.File, digest bool, differs func(int, string)) error {
	defer func() { _ = m.empty() }()
	at := make(map[string]int, len(files))
	for i, f := range files {
		if err := m.put(ctx, f, at); err != nil {
			if errors.Is(err, objectpath.ErrDamaged) || errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, errPlace) {
				differs(i, err.Error())
				continue
			}
			return err
		}
		at[f.Path] = i
	}
	arguments := []string{"--dry-run"}
	if digest {
		arguments = append(arguments, "--checksum")
	}
	paths := slices.Sorted(maps.Keys(at))
	would, failed, err := m.send(ctx, paths, arguments...)
	if err != nil {
		return err
	}
	named, rest := failed.byPath(paths)
	for p, i := range at {
		how, is := would[p]
		switch {
		case is:
			differs(i, whyOf(how))
		case named[p] != "" || rest != "": // rsync could not compare it
			differs(i, cmp.Or(named[p], rest))
		}
	}
	return nil
}

// whyOf says why rsync would send a file, by what it says with --out-format=%i: what of checksum, size and time differs, at fixed places.
func whyOf(how string) string {
	switch {
	case isNew(how):
		return "the partner does not have this file"
	case how[3] == 's':
		return "the partner has a file of another size in its place"
	case how[2] == 'c':
		return "the partner has other bytes in its place"
	default:
		return "the partner has a file with another time in its place"
	}
}

// isNew says whether the partner has no file of the name that rsync sends, or would send, by what it says with --out-format=%i.
func isNew(how string) bool { return len(how) < 5 || how[2] == '+' }

// Has implements push.Mover: rsync says what it would overwrite. Nothing is asked for that a daemon may refuse to whom it lets write alone,
// as to remove or to read.
func (m *Mover) Has(ctx context.Context, paths []string) (there []string, err error) {
	defer func() { _ = m.empty() }()
	for len(paths) > 0 {
		if err := m.empty(); err != nil {
			return nil, err
		}
		at, later := make(map[string]int, len(paths)), []string(nil)
		for i, p := range paths {
			switch err := m.put(ctx, push.File{Path: p}, at); {
			case err == nil:
				at[p] = i
			case errors.Is(err, errPlace) && !errors.Is(err, syscall.ENAMETOOLONG): // another one of these lies in a folder of this name
				later = append(later, p)
			case !errors.Is(err, errPlace):
				return nil, err
			}
		}
		some := slices.Sorted(maps.Keys(at))
		if len(some) > 0 {
			would, failed, err := m.send(ctx, some, "--dry-run", "--existing", "--ignore-times")
			if err != nil {
				return nil, err
			}
			named, rest := failed.byPath(some)
			for _, p := range some {
				if _, is := would[p]; is || named[p] != "" || rest != "" { // of what the partner cannot look at it may have a file
					there = append(there, p)
				}
			}
		}
		if len(later) == len(paths) {
			break
		}
		paths = later
	}
	return there, nil
}

// MayRemove implements push.Mover: rsync says what it would remove.
func (m *Mover) MayRemove(ctx context.Context, paths []string) error {
	if err := m.empty(); err != nil {
		return err
	}
	_, err := m.run(ctx, list(paths), nil, "--dry-run", "--delete-missing-args", "--files-from=-", "--from0", m.stage()+"/", m.target())
	return err
}

// Remove implements push.Mover.
func (m *Mover) Remove(ctx context.Context, paths []string) error {
	if err := m.empty(); err != nil {
		return err
	}
	failed, err := m.run(ctx, list(paths), nil, "--delete-missing-args", "--files-from=-", "--from0", m.stage()+"/", m.target())
	if err == nil && failed.some && !failed.vanished { // what is not staged, as a folder of a path, has vanished for rsync
		return &push.KeptError{Err: fmt.Errorf("the partner did not remove all: rsync says %s", firstLine(failed.said))}
	}
	return err
}
