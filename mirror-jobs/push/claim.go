// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// claims are the current objects that the partner is to have under paths from which a copy must go: another version of a name, or after a
// change of the template another object. They are asked for by path, so that a run has no list of all paths.

// unclaimed returns those of some copies that are not, as far as can be known, the copy of the object that has the path now. It compares
// bytes where size and time are the same for both; copies of the same bytes stay.
func (r *run) unclaimed(ctx context.Context, at *server, some []gone) ([]gone, error) {
	of, err := r.claims(ctx, some)
	if err != nil || len(of) == 0 {
		return some, err
	}
	var free []gone
	for _, g := range some {
		f, claimed := of[g.path]
		if claimed {
			if claimed, err = r.holds(ctx, at, g, f); err != nil {
				return nil, err
			}
		}
		if !claimed {
			free = append(free, g)
		}
	}
	return free, nil
}

// holds says whether what lies under a path may be the copy of the object that has the path now.
func (r *run) holds(ctx context.Context, at *server, g gone, f File) (bool, error) {
	if f.Digest == g.record.Digest {
		return true, nil
	}
	if !g.shared { // the same server may have another name
		other := false
		if err := at.mover.Verify(ctx, []File{g.file()}, false, func(int, string) { other = true }); err != nil || other {
			return other, err
		}
	}
	if f.Size != g.record.Size {
		return false, nil
	}
	same, unread, open := true, false, f.Open
	f.Open = func(ctx context.Context) (io.ReadCloser, error) {
		body, err := open(ctx)
		if err != nil {
			unread = true
			return nil, err
		}
		return &watched{body, &unread}, nil
	}
	err := at.mover.Verify(ctx, []File{f}, true, func(int, string) { same = false })
	return same || unread, err
}

// watched notes that the bytes of a file could not be read, or are not its own.
type watched struct {
	io.ReadCloser
	failed *bool
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		*w.failed = true
	}
	return n, err
}

// claims are the current objects that the partner is to have under the paths of some copies, by path.
func (r *run) claims(ctx context.Context, some []gone) (map[string]File, error) {
	of := map[string]File{}
	for _, name := range r.Entry.Selection.Instruments {
		in, declared := r.Registry().Instruments[name]
		if !declared {
			continue
		}
		var may []gone
		for _, g := range some {
			if r.mayName(in, g.path) {
				may = append(may, g)
			}
		}
		var err error
		switch {
		case len(may) == 0:
		case r.template == nil:
			err = r.claimsPublished(ctx, in, may, of)
		default:
			err = r.claimsNamed(ctx, in, may, of)
		}
		if err != nil {
			return nil, err
		}
	}
	return of, nil
}

// mayName says whether the path of an object of an instrument may be this one.
func (r *run) mayName(in wire.InstrumentEntry, path string) bool {
	if r.template == nil {
		return strings.HasPrefix(path, in.Instrument+"/")
	}
	if !strings.Contains(path, in.Instrument) {
		return false
	}
	if !r.template.Has("id") && !r.template.Has("name") { // the path may have a number that the template does not
		return true
	}
	_, err := r.template.Read(path)
	return err == nil
}

// claimsPublished finds the objects that are published under paths.
func (r *run) claimsPublished(ctx context.Context, in wire.InstrumentEntry, some []gone, of map[string]File) error {
	selects := r.selection(in)
	d := &pushed{in: in}
	d.here = d.layout(r.currentPlace(in))
	for _, g := range some {
		o := plan.PushObject{Path: strings.TrimPrefix(g.path, in.Instrument+"/")}
		is, err := r.Catalog.Find(ctx, in.Instrument, o.Path)
		if errors.Is(err, catalog.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		o.Record = &is
		r.claim(d, &o, selects, g.path, of)
	}
	return nil
}

// claimsNamed finds the objects that have paths by the template. If copies lie under the current template, only a version that came
// later has the path of an earlier one.
func (r *run) claimsNamed(ctx context.Context, in wire.InstrumentEntry, some []gone, of map[string]File) error {
	wanted, first := make(map[string]bool, len(some)), wire.DayOf(some[0].record.ReceivedAt)
	for _, g := range some {
		wanted[g.path] = true
		first = min(first, wire.DayOf(g.record.ReceivedAt))
	}
	if slices.ContainsFunc(some, func(g gone) bool { return g.former }) {
		first = ""
	}
	days, err := r.Catalog.Days(ctx, in.Instrument)
	if err != nil {
		return err
	}
	selects := r.selection(in)
	for _, day := range days {
		if day.Day < first {
			continue
		}
		d, err := r.read(ctx, in, day.Day, seen{})
		if err != nil {
			return err
		}
		for i := range d.objects {
			if p, ok := d.here.pathOf(&d.objects[i], false); ok && wanted[p] {
				r.claim(d, &d.objects[i], selects, p, of)
			}
		}
	}
	return nil
}

// claim notes an object that has a path if it is current, and the partner is to have it there.
func (r *run) claim(d *pushed, o *plan.PushObject, selects func(*wire.Record) bool, path string, of map[string]File) {
	if o.Record.State != wire.StateCurrent || !selects(o.Record) {
		return
	}
	if f, err := r.file(d, o); err == nil && f.Path == path {
		of[path] = f
	}
}
