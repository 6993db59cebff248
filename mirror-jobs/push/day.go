// SPDX-License-Identifier: Apache-2.0

package push

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// pushed is a day on its way.
type pushed struct {
	in    wire.InstrumentEntry
	day   wire.Day
	tag   string
	known seen

	objects []plan.PushObject
	plan    plan.Push
	// here is how its copies are named where they lie now.
	here layout
	// left are copies of it that lie elsewhere.
	left []Left

	// open are files whose end is not known; failed are those that the partner did not get.
	open, failed int
	// missing are the objects that the partner did not get, and lost how many of them it had confirmed before.
	missing wire.Totals
	lost    int
	// complete: all files are in batches.
	complete bool
	// cut: something is to be done about the day that lies outside the bounds of this run.
	cut bool
	// removed copies.
	removed int
	// stays: copies are there that the run may not remove, or cannot.
	stays bool
	// asked: the day is looked at once more for what is asked of the partner.
	asked bool
}

// read finds out what is to be done about a day.
func (r *run) read(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known seen) (*pushed, error) {
	held, err := r.Catalog.Day(ctx, in.Instrument, day)
	if err != nil {
		return nil, err
	}
	d := &pushed{in: in, day: day, known: known, objects: make([]plan.PushObject, len(held.Records)), left: slices.Clone(known.Left)}
	selects := r.selection(in)
	for i, record := range held.Records {
		d.objects[i] = plan.PushObject{Path: held.Path(i), Record: record, Selected: selects(record)}
	}
	for _, record := range held.TakenBack() { // they are not given to any partner any more
		d.objects = append(d.objects, plan.PushObject{Path: record.Published(), Record: record})
	}
	d.plan = r.policy.Day(d.objects, known.PushKnown, r.isBroughtAnew(known))
	d.here = d.layout(r.currentPlace(in))
	return d, nil
}

// inside says whether an object is within the bounds of this run.
func (r *run) inside(record *wire.Record) bool {
	first, last := record.Observed()
	return (r.To.IsZero() || first.Before(r.To)) && !last.Before(r.From)
}

// errNoPath: an object cannot have a path at the partner.
var errNoPath = &Problem{Reason: wire.MirrorReasonInvalidTemplate, Err: errors.New(
	"the object has no path at the partner, or one that is kept for earlier versions: change spec.layout.template of the MirrorPartner")}

// file is an object on its way. Errors: errNoPath, with the path that the object has here.
func (r *run) file(d *pushed, o *plan.PushObject) (File, error) {
	record, in := o.Record, d.in
	p, ok := d.here.pathOf(o, record.State == wire.StateSuperseded)
	if !ok {
		return File{Path: in.Instrument + "/" + o.Path, Size: record.Size, Modified: record.ReceivedAt}, errNoPath
	}
	f := File{
		Path: p, Size: record.Size, Modified: record.ReceivedAt, Digest: record.Digest, MediaType: record.MediaType,
		Open:  func(ctx context.Context) (io.ReadCloser, error) { return objectpath.Open(ctx, r.Store, *record) },
		owner: in.Instrument + " " + cmp.Or(record.Name, o.Path),
	}
	again := record.RestoredAt != nil || record.Version > 1 || record.Supersedes != ""
	f.clears, f.Replaces = again && r.Entry.Retractions != wire.MirrorIgnore, again || len(d.left) > 0 // a template of before may have named another object so
	if record.State == wire.StateCurrent {
		f.outdated = func(ctx context.Context) (bool, error) {
			is, err := r.Catalog.Find(ctx, in.Instrument, o.Path)
			if errors.Is(err, catalog.ErrNotFound) {
				return false, nil
			}
			return err == nil && is.State == wire.StateCurrent && is.ID != record.ID, err
		}
	}
	return f, nil
}

func short(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:12])
}
