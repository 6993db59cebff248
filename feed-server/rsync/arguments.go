// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxArguments and maxArgumentBytes bound what a client asks for in its arguments: a
	// long list of files comes by --files-from.
	maxArguments     = 1024
	maxArgumentBytes = 128 << 10
)

// options are a client's options, as far as they concern the sender.
type options struct {
	sender        bool
	recurse, dirs bool
	// relative: names have the whole path. Flat: they have not, though --files-from would
	// have it so.
	relative, flat             bool
	dryRun, checksum, compress bool
	users, groups, numeric     bool
	filesFrom, skipMissing     bool
	// whole: the file list is to be sent at once.
	whole bool
	// appends is 1 if a client has the beginnings of files and takes them to be right, and 2 if the
	// sum of a file is to cover all of it.
	appends                      int
	compressChoice, checksumName string
	seed                         int32
	hasSeed                      bool
	timeout                      time.Duration
	// bytesPerSecond is what the client wants to be sent at most; 0: no limit.
	bytesPerSecond int64
	// can are the letters of what the client can do.
	can string
	// paths are what is asked for, below the module.
	paths []string
}

func (o *options) has(letter string) bool { return strings.Contains(o.can, letter) }

// readArguments reads a list that ends with an empty one.
func readArguments(in *input) ([]string, error) {
	var all []string
	for left := maxArgumentBytes; ; {
		text, err := in.until(0, left)
		if err != nil {
			return nil, err
		}
		if text == "" {
			return all, nil
		}
		if left -= len(text); len(all) == maxArguments {
			return nil, malformed("more than %d arguments", maxArguments)
		}
		all = append(all, text)
	}
}

// secluded reports whether the rest of the arguments follows: a client does so if it is to hide
// them from the shell of a remote host.
func secluded(arguments []string) bool {
	return slices.ContainsFunc(arguments, func(a string) bool {
		if a == "--secluded-args" || a == "--protect-args" {
			return true
		}
		letters, _, _ := strings.Cut(a, "e")
		return isLetters(a) && strings.Contains(letters, "s")
	})
}

func isLetters(argument string) bool {
	return len(argument) > 1 && argument[0] == '-' && argument[1] != '-'
}

// parseArguments parses the arguments. Errors: a refusal.
func parseArguments(module string, arguments []string) (*options, error) {
	o := &options{}
	options := true
	for _, a := range arguments {
		var err error
		switch {
		case options && a == ".":
			options = false
		case options && strings.HasPrefix(a, "--"):
			err = o.long(strings.TrimPrefix(a, "--"))
		case options && isLetters(a):
			err = o.letters(a[1:])
		case options:
			err = refuse(exitSyntax, "the argument %q is not understood here", a)
		default:
			o.paths = append(o.paths, below(module, a))
		}
		if err != nil {
			return o, err
		}
	}
	if !o.sender {
		return o, refuse(exitSyntax, "module %s is read only: nothing can be written to it", module)
	}
	if o.filesFrom { // with -R unless it is said otherwise, and directories without their content
		o.relative, o.dirs = true, true
	}
	o.relative = o.relative && !o.flat
	return o, nil
}

// below is a path in the module that an argument means: each begins with its name.
func below(module, argument string) string {
	rest, ok := strings.CutPrefix(argument, module)
	if ok && (rest == "" || rest[0] == '/') {
		return rest
	}
	return argument
}

// harmless are letters of options that concern the receiving side alone, or what the
// archive does not have: links, devices, sparse files.
const harmless = "vqbulLkKWHDtpEISxmOJsy"

// letters reads short options; what follows e is what the client can do.
func (o *options) letters(all string) error {
	for i, letter := range all {
		switch letter {
		case 'e':
			o.can = all[i+1:]
			return nil
		case 'r':
			o.recurse = true
		case 'd':
			o.dirs = true
		case 'R':
			o.relative = true
		case 'n':
			o.dryRun = true
		case 'c':
			o.checksum = true
		case 'z':
			o.compress = true
		case 'o':
			o.users = true
		case 'g':
			o.groups = true
		case 'A', 'X', 'U', 'N':
			return refuse(exitUnsupported, "the archive keeps no ACLs, extended attributes, access and creation times: leave out -%c", letter)
		case 'C':
			return refuse(exitUnsupported, "CVS exclusion is not supported: leave out -C, and use --exclude")
		case 'B': // a size follows
			return nil
		default:
			if !strings.ContainsRune(harmless, letter) {
				return refuse(exitSyntax, "the option -%c is not understood here", letter)
			}
		}
	}
	return nil
}

// receiving are long options that concern the receiving side alone, or that are what is
// done anyway.
var receiving = []string{
	"server", "from0", "no-r", "secluded-args", "protect-args", "list-only", "stats", "partial", "partial-dir", "inplace", "whole-file", "no-whole-file",
	"delete", "delete-before", "delete-during", "delete-delay", "delete-after", "delete-excluded", "ignore-errors", "force", "max-delete",
	"delete-missing-args", "safe-links", "copy-unsafe-links", "links", "no-links", "no-implied-dirs", "block-size", "compress-level", "skip-compress",
	"log-format", "out-format", "info", "debug", "stderr", "msgs2stderr", "outbuf", "temp-dir", "backup", "backup-dir", "suffix", "size-only",
	"existing", "ignore-existing", "ignore-non-existing", "modify-window", "max-size", "min-size", "max-alloc", "fuzzy", "compare-dest", "copy-dest", "link-dest",
	"open-noatime", "one-file-system", "sparse", "preallocate", "delay-updates", "super", "no-super", "omit-dir-times", "usermap", "groupmap", "chown",
	"munge-links", "stop-after", "stop-at", "mkpath", "trust-sender", "fsync", "specials", "no-specials", "devices", "no-devices",
}

// long reads one long option.
func (o *options) long(option string) error {
	name, value, _ := strings.Cut(option, "=")
	switch name {
	case "sender":
		o.sender = true
	case "recursive":
		o.recurse = true
	case "dirs":
		o.dirs = true
	case "relative":
		o.relative = true
	case "no-relative", "no-R":
		o.flat = true
	case "use-qsort", "no-inc-recursive", "no-i-r":
		o.whole = true
	case "numeric-ids":
		o.numeric = true
	case "ignore-missing-args":
		o.skipMissing = true
	case "append", "append-verify":
		o.appends++
	case "compress":
		o.compress = true
	case "new-compress":
		o.compress, o.compressChoice = true, zlibx
	case "old-compress":
		o.compress, o.compressChoice = true, zlib
	case "compress-choice", "zc":
		o.compress, o.compressChoice = value != "none", value
	case "checksum-choice", "cc":
		o.checksumName = value
	case "checksum-seed":
		return o.number(name, value, func(n int) { o.seed, o.hasSeed = int32(n), n != 0 })
	case "timeout":
		return o.number(name, value, func(n int) { o.timeout = time.Duration(n) * time.Second })
	case "bwlimit": // in KiB a second, whatever the user wrote
		return o.number(name, value, func(n int) { o.bytesPerSecond = max(0, int64(n)<<10) })
	case "files-from":
		if o.filesFrom = true; value != "-" {
			return refuse(exitUnsupported, "a list of files is read only from the client: name a file of the client with --files-from")
		}
	case "remove-source-files", "remove-sent-files":
		return refuse(exitUnsupported, "nothing can be removed here: leave out --%s", name)
	case "iconv":
		return refuse(exitUnsupported, "names are sent as they are, in UTF-8: leave out --iconv")
	default:
		if !slices.Contains(receiving, name) {
			return refuse(exitSyntax, "the option --%s is not understood here", name)
		}
	}
	return nil
}

func (o *options) number(name, value string, set func(int)) error {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return refuse(exitSyntax, "--%s=%s is no number", name, value)
	}
	set(int(n))
	return nil
}

// source is one of the requested sources. Dir is where its names begin, and name what they begin
// with: the name of a file or directory, or "." for the content of dir.
type source struct {
	dir, name string
	// content: the name ended with a slash or a dot.
	content bool
}

func (s source) path() string { return join(s.dir, s.name) }

// sourceOf reads a path. With relative names all of it but what stands before /./ is in
// them. It never leads out of the module.
func sourceOf(text string, relative bool) source {
	content := text == "" || strings.HasSuffix(text, "/") || text == "." || strings.HasSuffix(text, "/.") || text == ".." || strings.HasSuffix(text, "/..")
	if relative {
		dir, rest, split := strings.Cut(text, "/./")
		if !split {
			dir, rest = "", text
		}
		return source{clean(dir), dot(clean(rest)), content}
	}
	whole := clean(text)
	if content {
		return source{whole, ".", true}
	}
	dir, name := path.Split(whole)
	return source{strings.TrimSuffix(dir, "/"), dot(name), name == ""}
}

// clean is a path without what is not needed in it; "" is the module.
func clean(text string) string { return strings.TrimPrefix(path.Clean("/"+text), "/") }

func dot(name string) string {
	if name == "" {
		return "."
	}
	return name
}

// join joins two paths; either may be empty.
func join(dir, name string) string {
	switch {
	case name == "" || name == ".":
		return dir
	case dir == "" || dir == ".":
		return name
	default:
		return dir + "/" + name
	}
}
