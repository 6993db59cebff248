// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// ErrNotFound is what a Catalog wraps for a path that it does not list.
var ErrNotFound = errors.New("nothing in the archive has this path")

// Catalog knows what the archive holds. Its answers come from memory, or from a few
// manifests of the day that is asked for; records are shared: do not change them.
// Errors: ErrNotFound, and those of objectstore.
type Catalog interface {
	// Find returns the object that is published under a path: the current version, or
	// the one that was retracted last (wire.StateRetracted, wire.StatePurged).
	Find(ctx context.Context, instrument, path string) (wire.Record, error)
	// Versions returns all objects that are or were published under a path.
	Versions(ctx context.Context, instrument, path string) ([]wire.Record, error)
	// Children returns what a directory holds. Dir is a path without a slash at its
	// end; empty: all of the instrument's.
	Children(ctx context.Context, instrument, dir string) (Listing, error)
	// Oldest returns the earliest time at which anything beneath a directory can have been
	// observed, or else received; the zero time if it is unknown.
	Oldest(ctx context.Context, instrument, dir string) (time.Time, error)
	// Named returns the object that has a name of its sender's: its current version.
	Named(ctx context.Context, instrument, name string) (wire.Record, error)
	// Day returns what was received in a day, which may be nothing.
	Day(ctx context.Context, instrument string, day wire.Day) (Day, error)
	// DayTag returns the tag of a day without a look at what was received in it.
	DayTag(ctx context.Context, instrument string, day wire.Day) (string, error)
	// Directories yields all directories of an instrument, in order.
	Directories(ctx context.Context, instrument string) iter.Seq2[Directory, error]
}

// Listing is what one directory holds.
type Listing struct {
	// Tag changes whenever the listing does. There is no time of the change: an object that comes
	// late from a spool keeps the time at which it was received.
	Tag string
	// Folders are the sub-directories, in order of their names.
	Folders []Folder
	// Objects yields what is published in the directory itself, in order of names. Retracted
	// objects are left out. The sequence ends after an error.
	Objects iter.Seq2[Object, error]
}

// Folder is a sub-directory.
type Folder struct {
	Name string
	// Objects beneath it; -1 if unknown.
	Objects int64
}

// Object is one object of a directory.
type Object struct {
	// Name is the last part of its path.
	Name string
	*wire.Record
}

// Day is what was received of an instrument in one.
type Day struct {
	// Tag changes whenever the records do.
	Tag string
	// Records yields them in any order, but for duplicates.
	Records iter.Seq[*wire.Record]
}

// Directory is one of an instrument's directories. Changed is the approximate time of its last
// change; the zero time if it is unknown.
type Directory struct {
	Path    string
	Changed time.Time
}
