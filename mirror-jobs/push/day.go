// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// pushed is a day on its way.
type pushed struct {
	in    wire.InstrumentEntry
	day   wire.Day
	tag   string
	known KnownDay

	objects []plan.PushObject
	plan    plan.Push

	// open are files whose end is not known; failed are those that the partner did not get.
	open, failed int
	// complete: all files are in batches.
	complete bool
	// cut: something is to be done about the day that lies outside the bounds of this run.
	cut bool
	// removed copies.
	removed int
	// stays: copies are there that the run may not remove.
	stays bool
}

// read finds out what is to be done about a day.
func (r *run) read(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known KnownDay) (*pushed, error) {
	held, err := r.Catalog.Day(ctx, in.Instrument, day)
	if err != nil {
		return nil, err
	}
	d := &pushed{in: in, day: day, known: known, objects: make([]plan.PushObject, len(held.Records))}
	selects := r.selection(in)
	for i, record := range held.Records {
		d.objects[i] = plan.PushObject{Path: held.Path(i), Record: record, Selected: selects(record)}
	}
	d.plan = r.policy.Day(d.objects, known.PushKnown, r.Force)
	return d, nil
}

// inside says whether an object is within the bounds of this run.
func (r *run) inside(record *wire.Record) bool {
	first, last := record.Observed()
	return (r.To.IsZero() || first.Before(r.To)) && !last.Before(r.From)
}

// versions begins the paths of superseded versions at a partner, as it does in the archive's keys.
const versions = "v/"

// ofVersion is a path that is kept for superseded versions.
var ofVersion = regexp.MustCompile(`^v/[0-9]+/`)

// pathOf is where a copy of an object lies at the partner, as its current version or as an
// older one; false where it has no path.
func (r *run) pathOf(in wire.InstrumentEntry, o *plan.PushObject, older bool) (string, bool) {
	version := ""
	if older {
		version = versions + strconv.Itoa(max(1, o.Record.Version)) + "/"
	}
	own := o.Path
	p := in.Instrument + "/" + version + own
	if r.template != nil {
		name := o.Record.Name
		if name == "" {
			name = path.Base(o.Path)
		}
		text, err := r.template.Write(naming.Values{
			Time: at(o.Record), Station: in.Station, Instrument: in.Instrument, Name: name,
			ID: wire.ShortID(o.Record.ReceivedAt, o.Record.Digest), Digest: o.Record.Digest.String(),
		})
		if err != nil {
			return "", false
		}
		own, p = text, version+text
	}
	if r.policy.AllVersions && ofVersion.MatchString(own) {
		return "", false
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\x00\n\r") || len(part) > 255 {
			return "", false
		}
	}
	return p, true
}

// at is the time that a path tells.
func at(r *wire.Record) time.Time {
	if r.ObservedFrom != nil {
		return *r.ObservedFrom
	}
	return r.ReceivedAt
}

// file is an object on its way; false, and a line in the log, where it has no path.
func (r *run) file(in wire.InstrumentEntry, o *plan.PushObject) (File, bool) {
	record := o.Record
	p, ok := r.pathOf(in, o, record.State == wire.StateSuperseded)
	if !ok {
		r.Logger.Error("an object has no path at the partner", "instrument", in.Instrument, "object", record.ID, "template", r.Entry.Template)
		return File{}, false
	}
	f := File{
		Path: p, Size: record.Size, Modified: record.ReceivedAt, Digest: record.Digest, MediaType: record.MediaType,
		Open:   func(ctx context.Context) (io.ReadCloser, error) { return objectpath.Open(ctx, r.Store, *record) },
		clears: r.Entry.Retractions != wire.MirrorIgnore && (record.RestoredAt != nil || record.Version > 1 || record.Supersedes != ""),
	}
	if record.State == wire.StateCurrent {
		f.outdated = func(ctx context.Context) (bool, error) {
			is, err := r.Catalog.Find(ctx, in.Instrument, o.Path)
			if errors.Is(err, catalog.ErrNotFound) {
				return false, nil
			}
			return err == nil && is.State == wire.StateCurrent && is.ID != record.ID, err
		}
	}
	return f, true
}

func short(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:12])
}
