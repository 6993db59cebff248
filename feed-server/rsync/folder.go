// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/substorm/substorm/internal/wire"
)

// place is a folder of the archive: a folder of an instrument, or, without an instrument, the
// folder of all of them.
type place struct{ instrument, dir string }

func placeOf(path string) place {
	instrument, dir, _ := strings.Cut(path, "/")
	return place{instrument, dir}
}

// folder is a directory of the file list. It has the content of its places, and what was
// asked for by its name.
type folder struct {
	// name is the whole one in the list; "" for the top of it.
	name string
	// day is the last day of receipt of its content.
	day    wire.Day
	places []place
	named  map[string]*named
	// content: all that its places have is in the list. Implied: it is only there for what
	// was asked for in it. Top: it was asked for itself.
	content, implied, top bool
}

// named is something that a client asks for by its name.
type named struct {
	// folder is nil of a file.
	folder *folder
	file   file
	place  place
}

// item is one entry of the file list: a file of a place, or a folder.
type item struct {
	file
	place  place
	folder *folder
}

func (f *folder) has(p place) bool { return slices.Contains(f.places, p) }

// child returns a folder in this one that is asked for by its name, or its part of it.
func (f *folder) child(name string) *folder {
	is := f.named[name]
	if is == nil {
		is = &named{folder: &folder{name: join(f.name, name), implied: true}}
		f.put(name, is)
	}
	return is.folder
}

func (f *folder) put(name string, is *named) {
	if f.named == nil {
		f.named = map[string]*named{}
	}
	f.named[name] = is
}

// children are what a folder holds, in the order of the list: files by their names, and then
// folders, which sort by their names with a slash behind. The caller gives held back to the view
// when it is done with them, also after an error. Errors: those of the catalog, errNoMemory.
func (s *session) children(ctx context.Context, f *folder) (files []item, held int64, err error) {
	dirs := map[string]*folder{}
	var left leftOut
	for name, is := range f.named {
		if is.folder != nil {
			dirs[name] = is.folder
		} else {
			files = append(files, item{file: is.file, place: is.place})
		}
	}
	single := len(files) == 0 && len(f.places) == 1
	for _, p := range f.places {
		all, err := s.entries(ctx, p, func(path string) bool { return s.passesFilter(f.name, path) })
		if err != nil {
			return nil, held, err
		}
		held += all.held
		left.add(all.left.count, all.left.example)
		for _, is := range all.files {
			if err := s.tick(ctx); err != nil {
				return nil, held, err
			}
			if !s.filter.excludes(join(f.name, is.name), false) {
				files = append(files, item{file: is, place: p})
			}
		}
		for name, day := range all.dirs {
			if err := s.tick(ctx); err != nil {
				return nil, held, err
			}
			s.addDir(f, dirs, name, day, p)
		}
	}
	if s.filter.failed != nil {
		return nil, held, s.filter.failed
	}
	files = slices.DeleteFunc(files, func(is item) bool {
		if dirs[is.name] == nil {
			return false
		}
		left.add(1, join(f.name, is.name))
		return true
	})
	s.leave(left)
	if !single {
		slices.SortStableFunc(files, func(a, b item) int { return strings.Compare(a.name, b.name) })
		files = slices.CompactFunc(files, func(a, b item) bool { return a.name == b.name })
	}
	for _, name := range slices.SortedFunc(maps.Keys(dirs), func(a, b string) int { return strings.Compare(a+"/", b+"/") }) {
		files = append(files, item{folder: dirs[name]})
	}
	return files, held, nil
}

// passesFilter reports whether the client's filter accepts an object below a folder of the list, and the folders between them.
func (s *session) passesFilter(folder, path string) bool {
	for i, c := range path {
		if c == '/' && s.filter.excludes(join(folder, path[:i]), true) {
			return false
		}
	}
	return !s.filter.excludes(join(folder, path), false)
}

// leave reports to a client that a list lacks objects that it asks for; the client then exits with 23. It still deletes what is not listed,
// as with --delete: none of these objects has a file at the client.
func (s *session) leave(left leftOut) {
	if left.count == 0 {
		return
	}
	s.metrics.unnamed.Add(float64(left.count))
	s.say(frameNotSent, "%d objects are left out, such as %q: a folder or another file has the name, or no file can have it. Ask for it by its whole path, or over HTTP",
		left.count, left.example)
}

// addDir adds a folder of one of the places of another.
func (s *session) addDir(f *folder, dirs map[string]*folder, name string, day wire.Day, in place) {
	whole := join(f.name, name)
	if s.filter.excludes(whole, true) {
		return
	}
	d := dirs[name]
	if d == nil {
		d = &folder{name: whole}
		dirs[name] = d
	}
	d.day, d.implied = max(d.day, day), false
	if !s.options.recurse {
		return
	}
	d.content = true
	is := place{name, ""}
	if in.instrument != "" {
		is = place{in.instrument, join(in.dir, name)}
	}
	if !d.has(is) {
		d.places = append(d.places, is)
	}
}

// entries lists a place. An instrument that is no longer public is reported once, and is empty. Errors: those of the catalog and of goesOn,
// errNoMemory.
func (s *session) entries(ctx context.Context, p place, asked func(path string) bool) (entries, error) {
	if err := s.checkClient(ctx); err != nil {
		return entries{}, err
	}
	if p.instrument == "" {
		all, err := s.view.instruments(ctx)
		return entries{dirs: all}, err
	}
	all, err := s.view.folder(ctx, p.instrument, p.dir, asked)
	if errors.Is(err, errOver) {
		s.tellWithdrawn(p.instrument)
		return entries{}, nil
	}
	return all, err
}
