// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"context"
	"slices"
	"strings"
)

const (
	// maxMatches is how many names the wildcards in all arguments may match, names of directories on the way
	// included.
	maxMatches = 1 << 16
	wildcards  = `*?[\`
)

// expansion finds what paths with wildcards mean. The names that it finds are held in memory until the transfer ends, and counted while they grow:
// a short pattern can mean any number of names.
type expansion struct {
	*session
	// left is how many further names there may be.
	left int
}

// expand returns the sources that a source with wildcards matches; if none matches, the source without wildcards.
// Errors: the catalog's, ctx's, a refusal.
func (x *expansion) expand(ctx context.Context, given source) ([]source, error) {
	path := given.path()
	if len(path) > maxPath {
		return nil, refuse(exitUnsupported, "a path has more than %d bytes", maxPath)
	}
	if !strings.ContainsAny(path, wildcards) {
		return []source{given}, x.take(path)
	}
	found := []string{""}
	for literal, pattern := range steps(path) {
		var next []string
		for _, dir := range found {
			all, err := x.matching(ctx, join(dir, literal), pattern)
			if err != nil {
				return nil, err
			}
			next = append(next, all...)
		}
		found = next
	}
	if len(found) == 0 {
		plain := func(text string) string { return strings.ReplaceAll(text, `\`, "") }
		return []source{{plain(given.dir), plain(given.name), given.content}}, nil
	}
	all := make([]source, 0, len(found))
	for _, path := range found {
		all = append(all, given.at(path))
	}
	return all, nil
}

// steps yields the elements of a path that have wildcards, each behind those before it that have none. The last has
// no pattern if nothing with wildcards is behind it.
func steps(path string) func(yield func(literal, pattern string) bool) {
	return func(yield func(literal, pattern string) bool) {
		literal := ""
		for _, element := range strings.Split(path, "/") {
			if !strings.ContainsAny(element, wildcards) {
				literal = join(literal, element)
				continue
			}
			if !yield(literal, element) {
				return
			}
			literal = ""
		}
		if literal != "" {
			yield(literal, "")
		}
	}
}

// at is a source whose path has no wildcards any more: names are as many of its last elements as before.
func (s source) at(path string) source {
	if s.name == "." {
		return source{path, ".", s.content}
	}
	name := last(path, strings.Count(s.name, "/")+1)
	return source{strings.TrimSuffix(strings.TrimSuffix(path, name), "/"), name, s.content}
}

// matching are the paths in a directory whose last element matches a pattern; the directory itself, if that is empty.
func (x *expansion) matching(ctx context.Context, dir, pattern string) (found []string, err error) {
	if pattern == "" {
		return []string{dir}, x.take(dir)
	}
	all, err := x.entries(ctx, placeOf(dir), func(string) bool { return false })
	if err != nil {
		return nil, err
	}
	defer x.view.done(all.held)
	add := func(name string) error {
		if err := x.tick(ctx); err != nil {
			return err
		}
		m := matcher{steps: maxSteps}
		switch matches := m.match(pattern, name); {
		case m.spent():
			return refuse(exitUnsupported, "%q takes too long for the name %q: use fewer wildcards", pattern, name)
		case !matches:
			return nil
		}
		found = append(found, join(dir, name))
		return x.take(found[len(found)-1])
	}
	for name := range all.dirs {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	for _, f := range all.files {
		if err := add(f.name); err != nil {
			return nil, err
		}
	}
	slices.Sort(found)
	return found, nil
}

// take counts a path that was found, and has its memory held. Errors: a refusal.
func (x *expansion) take(path string) error {
	if x.left--; x.left < 0 {
		return refuse(exitUnsupported, "the requested paths match more than %d names: request their directories with -r", maxMatches)
	}
	if !x.hold(namedCost + int64(len(path))) {
		return errNoMemory
	}
	return nil
}
