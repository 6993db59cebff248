// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"path"
	"regexp"
	"strings"

	"github.com/substorm/substorm/internal/wire"
)

// failures are what rsync said on standard error of the files that failed.
type failures struct {
	some bool
	// vanished: none failed but those that were not there.
	vanished bool
	said     string
	// cut: it said more than is kept.
	cut bool
}

// byPath says which of some files failed, and what rsync said of each: those that it named, and those below a folder that it named. If it named
// none, or not all that it said is known, all others may have failed, too: rest is what it said of them.
func (f failures) byPath(paths []string) (named map[string]string, rest string) {
	named = map[string]string{}
	if !f.some {
		return named, ""
	}
	asked, folders := make(map[string]bool, len(paths)), map[string]string{}
	for _, p := range paths {
		asked[p] = true
		for dir := path.Dir(p); dir != "." && dir != "/"; dir = path.Dir(dir) {
			folders[dir] = ""
		}
	}
	for line := range strings.Lines(f.said) {
		if p, is := nameOf(unescaped(strings.TrimSuffix(line, "\n")), asked, folders); is && asked[p] {
			named[p] = wire.SaidText(line)
		} else if is {
			folders[p] = wire.SaidText(line)
		}
	}
	for _, p := range paths {
		for dir := path.Dir(p); named[p] == "" && dir != "." && dir != "/"; dir = path.Dir(dir) {
			if why := folders[dir]; why != "" {
				named[p] = why
			}
		}
	}
	if len(named) == 0 || f.cut {
		rest = "rsync could not transfer some files: " + firstLine(f.said)
	}
	return named, rest
}

// temporary is the name that rsync gives to a file that is not whole.
var temporary = regexp.MustCompile(`^\.(.+)\.[A-Za-z0-9]{6}$`)

// quotation is what stands between two quotation marks next to each other.
var quotation = regexp.MustCompile(`"([^"]*)"`)

// nameOf is which of the files, or folders, a line of rsync names: the longest name that ends as one in it does, since what stands before it
// is a folder of one of both sides.
func nameOf(line string, files map[string]bool, folders map[string]string) (string, bool) {
	var all []string
	for _, q := range quotation.FindAllStringSubmatch(line, -1) {
		all = append(all, q[1])
	}
	if first, last := strings.IndexByte(line, '"'), strings.LastIndexByte(line, '"'); first < last {
		all = append(all, line[first+1:last])
	}
	for rest, found := line, true; found; {
		if _, rest, found = strings.Cut(rest, ": "); found {
			all = append(all, rest, strings.TrimSuffix(rest, " failed verification -- update discarded."))
		}
	}
	for _, name := range all {
		dir, base := path.Split(name)
		if part := temporary.FindStringSubmatch(base); part != nil {
			all = append(all, dir+part[1])
		}
	}
	longest, is := "", false
	for _, name := range all {
		for found := true; found; _, name, found = strings.Cut(name, "/") {
			if _, folder := folders[name]; (files[name] || folder) && len(name) > len(longest) {
				longest, is = name, true
				break
			}
		}
	}
	return longest, is
}
