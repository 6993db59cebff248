// SPDX-License-Identifier: Apache-2.0

// Package bound limits what a run keeps of a list that another side sends, by entries and by bytes of memory. A list beyond its
// limits is refused with an error that names the list, the limit and the next step.
package bound

import (
	"errors"
	"fmt"
	"io"
)

// The lists that have limits, as substorm_mirror_refused_lists_total names them.
const (
	// Page is an index page of a web server.
	Page = "page"
	// Folder is the files of a folder, Folders the folders of a tree, and Depth how deep they lie.
	Folder  = "folder"
	Folders = "folders"
	Depth   = "depth"
	// RsyncList is what rsync lists, and RsyncAnswer what it writes while it sends.
	RsyncList   = "rsync-list"
	RsyncAnswer = "rsync-answer"
	// Root, Days and Lists are the documents of a mirror index.
	Root  = "root"
	Days  = "days"
	Lists = "lists"
)

// Error refuses a list.
type Error struct {
	// List is one of the constants above, and Object names the list.
	List, Object string
	// Limit is the one that it exceeds, and Step says how to pull it nevertheless.
	Limit, Step string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s exceeds the limit of %s: %s", e.Object, e.Limit, e.Step)
}

// Of returns the refusals in an error, each list once.
func Of(err error) (lists []string) {
	seen := map[string]bool{}
	var walk func(error)
	walk = func(err error) {
		if e, is := err.(*Error); is && !seen[e.List] { //nolint:errorlint // each error of the tree is looked at
			seen[e.List] = true
			lists = append(lists, e.List)
		}
		switch wraps := err.(type) { //nolint:errorlint // as above
		case interface{ Unwrap() error }:
			walk(wraps.Unwrap())
		case interface{ Unwrap() []error }:
			for _, one := range wraps.Unwrap() {
				walk(one)
			}
		}
	}
	walk(err)
	return lists
}

// Is says whether an error is a refusal.
func Is(err error) bool { return errors.As(err, new(*Error)) }

// Limits of a list. Zero: no limit.
type Limits struct {
	Entries int
	// Bytes of memory that its entries take.
	Bytes int64
}

// List counts what is kept of a list.
type List struct {
	Limits
	// Entry is what an entry is called, in the plural, and Refusal the error beyond the limits, but for its Limit.
	Entry   string
	Refusal Error

	entries int
	bytes   int64
}

// Add counts entries that take so many bytes together. The error is a *Error: they are not to be kept, and not counted.
func (l *List) Add(entries int, bytes int64) error {
	var limit string
	switch {
	case l.Entries > 0 && l.entries+entries > l.Entries:
		limit = fmt.Sprintf("%d %s", l.Entries, l.Entry)
	case l.Bytes > 0 && l.bytes+bytes > l.Bytes:
		limit = fmt.Sprintf("%s for %s", size(l.Bytes), l.Entry)
	default:
		l.entries, l.bytes = l.entries+entries, l.bytes+bytes
		return nil
	}
	refusal := l.Refusal
	refusal.Limit = limit
	return &refusal
}

// Remove counts entries that are not kept any more.
func (l *List) Remove(entries int, bytes int64) {
	l.entries, l.bytes = l.entries-entries, l.bytes-bytes
}

// Kept returns the bytes of memory that the entries take.
func (l *List) Kept() int64 { return l.bytes }

// size writes bytes in the largest unit that has a whole number of them.
func size(bytes int64) string {
	switch {
	case bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	default:
		return fmt.Sprintf("%d bytes", bytes)
	}
}

// Reader reads up to so many bytes. It refuses a longer input with the given error, in which it sets only the Limit.
func Reader(from io.Reader, most int64, refusal Error) io.Reader {
	refusal.Limit = size(most)
	return &reader{from: from, left: most, refusal: &refusal}
}

type reader struct {
	from    io.Reader
	left    int64
	refusal *Error
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if r.left < 0 {
		return 0, r.refusal
	}
	n, err := r.from.Read(p[:min(int64(len(p)), r.left+1)])
	if r.left -= int64(n); r.left < 0 {
		return n - 1, r.refusal
	}
	return n, err
}
