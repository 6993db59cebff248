// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"context"
	"strings"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// maxNamed and maxNamedBytes bound the names in --files-from.
	maxNamed      = 1 << 18
	maxNamedBytes = 16 << 20
	// namedCost is what something takes that is asked for by name.
	namedCost = 512
	// maxPath is how long a path may be at a client's.
	maxPath = 4096
)

// top is what is asked for: the top of the file list. Dot: it begins with "." and its content.
type top struct {
	folder
	dot bool
}

// sources finds what the arguments and --files-from name. Errors: those of the
// connection and of the catalog.
func (s *session) sources(ctx context.Context) (*top, error) {
	t := &top{}
	if !s.options.filesFrom {
		x := &expansion{session: s, left: maxMatches}
		for _, path := range s.options.paths {
			all, err := x.expand(ctx, sourceOf(path, s.options.relative))
			if err != nil {
				return nil, err
			}
			for _, is := range all {
				if err := s.add(ctx, t, is); err != nil {
					return nil, err
				}
			}
		}
		return t, nil
	}
	base := ""
	if len(s.options.paths) > 0 {
		base = clean(s.options.paths[0])
	}
	return t, s.filesFrom(func(name string) error {
		is := sourceOf(name, s.options.relative)
		is.dir = join(base, is.dir)
		return s.add(ctx, t, is)
	})
}

// filesFrom reads names until an empty one. Before protocol 31 they come without frames.
func (s *session) filesFrom(each func(name string) error) error {
	if s.protocol < 31 {
		s.in.framed = false
		defer func() { s.in.framed = true }()
	}
	left := maxNamedBytes
	for count := 0; ; count++ {
		name, err := s.in.until(0, maxPath)
		if err != nil || name == "" {
			return err
		}
		if left -= len(name); left < 0 || count == maxNamed {
			return refuse(exitUnsupported, "--files-from names more than %d files, or has more than %d bytes: give it in parts", maxNamed, maxNamedBytes)
		}
		if count%askEvery == 0 && !s.hold(askEvery*namedCost) {
			return errNoMemory
		}
		if err := each(name); err != nil {
			return err
		}
	}
}

// hold has memory counted that a transfer takes until it ends.
func (s *session) hold(bytes int64) bool {
	held := s.memory.TryAcquire(bytes)
	if held {
		s.held += bytes
	}
	return held
}

// add adds one source to the list.
func (s *session) add(ctx context.Context, t *top, src source) error {
	if err := s.tick(ctx); err != nil {
		return err
	}
	kind, file, day, err := s.view.findPath(ctx, src.path())
	if err != nil {
		return err
	}
	if kind == isMissing || kind == isFile && src.content {
		if !s.options.skipMissing {
			s.fail(failedGeneral, "nothing public is here as %q: it may have been received more than %s ago", "/"+src.path(), days(s.cfg.Window))
		}
		return nil
	}
	if src.name != "." && s.filter.excludes(src.name, kind == isFolder) || s.filter.failed != nil {
		return s.filter.failed
	}
	if kind == isFolder && !s.options.recurse && !s.options.dirs {
		s.say(frameWarning, "skipping directory %s: ask for it with -r or -a", src.name)
		return nil
	}
	at := placeOf(src.path())
	if src.name == "." {
		t.dot, t.content, t.top, t.day = true, true, true, max(t.day, day)
		if !t.has(at) {
			t.places = append(t.places, at)
		}
		return nil
	}
	s.addNamed(t, src, kind, file, day, at)
	return nil
}

// addNamed adds a named file or folder, and the folders above it.
func (s *session) addNamed(t *top, src source, kind kind, found file, day wire.Day, at place) {
	parent, elements := &t.folder, strings.Split(src.name, "/")
	for _, name := range elements[:len(elements)-1] {
		if parent = parent.child(name); parent == nil {
			s.leave(leftOut{1, src.name}) // a file has that name
			return
		}
		parent.day = max(parent.day, day, found.day)
	}
	name := elements[len(elements)-1]
	if kind == isFile {
		switch other := parent.named[name]; {
		case other == nil:
			found.name = name
			at.dir = manifest.Dir(at.dir)
			parent.put(name, &named{file: found, place: at})
		case other.folder != nil:
			s.leave(leftOut{1, src.name})
		}
		return
	}
	d := parent.child(name)
	if d == nil {
		s.leave(leftOut{1, src.name})
		return
	}
	d.day, d.implied, d.top = max(d.day, day), false, true
	if s.options.recurse || src.content {
		d.content = true
		if !d.has(at) {
			d.places = append(d.places, at)
		}
	}
}
