// SPDX-License-Identifier: Apache-2.0

// Package objectpath knows under which paths objects can be had: those under which
// they are published, aliases, the legacy tree, and keys; and which object a path
// means.
package objectpath

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/wire"
)

// MaxPath is how long a path may be, in bytes: it is part of an object's metadata, and S3 accepts 2 KB of that.
const MaxPath = 512

// values are an object's values for the fields of a template.
func values(t *naming.Template, instrument, station string, r wire.Record, sequence uint64) naming.Values {
	return naming.Values{
		Time: timeOf(t, &r), Station: station, Instrument: instrument, Name: r.Name, Sequence: sequence,
		ID: wire.ShortID(r.ReceivedAt, r.Digest), Digest: r.Digest.String(),
	}
}

// timeOf is the time that an object's path contains: the time of receipt, except for an object whose name contains the time of
// observation. Paths are unique among the objects received on one day, so an observation time of another day counts only if the template
// holds what no two objects share: {name}, under which objects are found, or {id}: a path with it is looked up in the manifests of the
// day in the path and of the next.
func timeOf(t *naming.Template, r *wire.Record) time.Time {
	if r.TimeSource != wire.TimeSourceName || r.ObservedFrom == nil {
		return r.ReceivedAt
	}
	received := wire.DayOf(r.ReceivedAt)
	if t.Has("name") || wire.DayOf(*r.ObservedFrom) == received || t.Has("id") && slices.Contains(listedOn(*r.ObservedFrom), received) {
		return *r.ObservedFrom
	}
	return r.ReceivedAt
}

// listedOn are the days in whose manifests a path with a time is looked up. An object whose name contains its time may be received, and
// listed, a day later.
func listedOn(at time.Time) []wire.Day {
	return []wire.Day{wire.DayOf(at), wire.DayOf(at.Add(24 * time.Hour))}
}

// Path returns the path that an object has by a template, or nothing where it has
// none: it lacks the name that the template holds, or the path could not be part
// of a key. Sequence is 0 where it is not known.
func Path(t *naming.Template, instrument, station string, r wire.Record, sequence uint64) string {
	if t == nil || r.Segment != nil || sequence == 0 && t.Has("sequence") {
		return ""
	}
	text, err := t.Write(values(t, instrument, station, r, sequence))
	if err != nil || len(text) > MaxPath || wire.CheckName(text) != nil {
		return ""
	}
	return text
}

// Told returns the path of the number'th object under a path, counted from 1: from the second on it has ~ and the number before the
// extension.
func Told(text string, number int) string {
	if number < 2 {
		return text
	}
	return ToldBy(text, strconv.Itoa(number))
}

// ToldBy tells objects of a path apart: with ~ and a mark before the extension.
func ToldBy(text, mark string) string {
	folder, file := path.Split(text)
	stem, extension := cutExtension(file)
	return folder + stem + "~" + mark + extension
}

// Untold returns the path without the suffix that Told added, and the number.
func Untold(text string) (string, int) {
	folder, file := path.Split(text)
	stem, extension := cutExtension(file)
	i := strings.LastIndexByte(stem, '~')
	if i <= 0 {
		return text, 1
	}
	n, err := strconv.Atoi(stem[i+1:])
	if err != nil || n < 2 || strconv.Itoa(n) != stem[i+1:] {
		return text, 1
	}
	return folder + stem[:i] + extension, n
}

// cutExtension cuts at the first dot but one at the beginning: .tar.gz is one
// extension.
func cutExtension(file string) (stem, extension string) {
	if len(file) < 2 {
		return file, ""
	}
	if i := strings.IndexByte(file[1:], '.'); i >= 0 {
		return file[:i+1], file[i+1:]
	}
	return file, ""
}
