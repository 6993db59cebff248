// SPDX-License-Identifier: Apache-2.0

package push

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"path"
	"regexp"
	"slices"
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
	known seen

	objects []plan.PushObject
	plan    plan.Push
	// numbers, by ID, are those of objects that have the same path by the template as an earlier one.
	numbers map[string]int

	// open are files whose end is not known; failed are those that the partner did not get.
	open, failed int
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
	d := &pushed{in: in, day: day, known: known, objects: make([]plan.PushObject, len(held.Records))}
	selects := r.selection(in)
	for i, record := range held.Records {
		d.objects[i] = plan.PushObject{Path: held.Path(i), Record: record, Selected: selects(record)}
	}
	d.plan = r.policy.Day(d.objects, known.PushKnown, r.Force)
	d.numbers = r.numbers(d)
	return d, nil
}

// numbers tells objects of a day apart that have the same path by the template, in the order of receipt and whatever became of
// them, so that a path is that of one object forever. Only a digest alone leaves any: {id} and {name} differ, and the day is one
// of receipt, in the template too (at).
func (r *run) numbers(d *pushed) map[string]int {
	if r.template == nil || r.own() {
		return nil
	}
	records := make([]*wire.Record, len(d.objects))
	for i := range d.objects {
		records[i] = d.objects[i].Record
	}
	slices.SortFunc(records, wire.ByReceipt)
	numbers, seen := map[string]int{}, make(map[string]int, len(records))
	for _, record := range records {
		text, err := r.write(d.in, record, "")
		if err != nil {
			continue
		}
		if seen[text]++; seen[text] > 1 {
			numbers[record.ID] = seen[text]
		}
	}
	return numbers
}

// own says whether the template gives each object of an instrument a path of its own.
func (r *run) own() bool { return r.template.Has("id") || r.template.Has("name") }

// write returns the path of an object by the template. One without a name that the template asks for is named by its ID: what it is
// published under may end as the path of another day does.
func (r *run) write(in wire.InstrumentEntry, record *wire.Record, published string) (string, error) {
	id := wire.ShortID(record.ReceivedAt, record.Digest)
	return r.template.Write(naming.Values{
		Time: r.at(record), Station: in.Station, Instrument: in.Instrument, Name: cmp.Or(record.Name, id+path.Ext(published)),
		ID: id, Digest: record.Digest.String(),
	})
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

// pathOf is where a copy of an object of a day lies at the partner, as its current version or as
// an older one; false where it has no path.
func (r *run) pathOf(d *pushed, o *plan.PushObject, older bool) (string, bool) {
	version := ""
	if older {
		version = versions + strconv.Itoa(max(1, o.Record.Version)) + "/"
	}
	own := o.Path
	p := d.in.Instrument + "/" + version + own
	if r.template != nil {
		text, err := r.write(d.in, o.Record, o.Path)
		if err != nil {
			return "", false
		}
		own = objectpath.Told(text, d.numbers[o.Record.ID])
		p = version + own
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

// at is the time that a path tells. Where paths are told apart among those that were received on one day, the observation counts
// only if it was that day.
func (r *run) at(record *wire.Record) time.Time {
	if at := record.ObservedFrom; at != nil && (r.own() || wire.DayOf(*at) == wire.DayOf(record.ReceivedAt)) {
		return *at
	}
	return record.ReceivedAt
}

// errNoPath: an object cannot have a path at the partner.
var errNoPath = errors.New("the object has no path at the partner, or one that is kept for earlier versions: change spec.layout.template of the MirrorPartner")

// file is an object on its way; false, and a line in the log, where it has no path.
func (r *run) file(d *pushed, o *plan.PushObject) (File, bool) {
	record, in := o.Record, d.in
	p, ok := r.pathOf(d, o, record.State == wire.StateSuperseded)
	if !ok {
		r.Logger.Error("an object has no path at the partner", "instrument", in.Instrument, "object", record.ID, "template", r.Entry.Template)
		return File{}, false
	}
	f := File{
		Path: p, Size: record.Size, Modified: record.ReceivedAt, Digest: record.Digest, MediaType: record.MediaType,
		Open:   func(ctx context.Context) (io.ReadCloser, error) { return objectpath.Open(ctx, r.Store, *record) },
		owner:  in.Instrument + " " + cmp.Or(record.Name, o.Path),
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
