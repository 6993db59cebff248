// SPDX-License-Identifier: Apache-2.0

package push

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// Copies are removed in two passes. The first one counts those of all days that must go and that the partner has: where that
// are too many, none is removed. The second one removes them, day by day, and never more than the first one allowed.

// gone is a copy that must go, if it is there.
type gone struct {
	path   string
	record *wire.Record
	// by is the path of the version that replaces it; empty where there is none.
	by string
}

// allow counts the copies that must go before any is removed.
func (r *run) allow(ctx context.Context) error {
	if r.Force {
		return nil
	}
	var held, remove int
	var ask, some []string
	has := func() error {
		there, err := r.has(ctx, ask)
		some = append(some, there[:min(len(there), max(0, maxNamed-len(some)))]...)
		remove, ask = remove+len(there), ask[:0]
		return err
	}
	count := func(ctx context.Context, in wire.InstrumentEntry, day wire.Day, known seen) error {
		held += known.Objects
		if known.KnownDay == (KnownDay{}) {
			return nil
		}
		if tag, err := r.tag(ctx, in, day); err != nil || tag == known.Tag {
			return err
		}
		d, err := r.read(ctx, in, day, known)
		if err != nil {
			return err
		}
		all, err := r.gone(ctx, d)
		if err != nil {
			return err
		}
		for _, g := range all {
			if ask = append(ask, g.path); len(ask) >= r.files {
				if err := has(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err := r.each(ctx, count)
	if err == nil {
		err = r.eachLeft(ctx, count)
	}
	if err == nil {
		err = has()
	}
	if err != nil {
		return err
	}
	if r.removable = r.policy.Most(held); remove > r.removable {
		r.stopped(remove, held)
		r.Logger.Warn("these copies must go, or are some of those", "paths", some)
	}
	return nil
}

// maxNamed are the copies that the log names where too many must go.
const maxNamed = 100

// stopped has the run remove nothing more.
func (r *run) stopped(remove, held int) {
	r.removable = 0
	r.stop = &plan.SafetyStopError{Remove: remove, Held: held, Percent: r.Entry.SafetyStopPercent,
		Command: fmt.Sprintf("`kubectl substorm mirror run %s --force`", r.Entry.Partner)}
	r.Logger.Error("copies must go, and none is removed", "error", r.stop)
}

// has returns those of some paths that the partner has.
func (r *run) has(ctx context.Context, paths []string) ([]string, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	return r.Mover.Has(ctx, paths)
}

// gone are the copies of a day that the partner may have and should not. The path of an object is that of its newest version,
// also where that is gone: only with it the copy goes.
func (r *run) gone(ctx context.Context, d *pushed) (all []gone, err error) {
	never := d.known.KnownDay == (KnownDay{}) && !r.Force // no run has brought anything
	if never && len(d.plan.Remove) > 0 {         // unless what was known of it is lost
		has, err := r.Book.Mirrored(ctx, d.in.Instrument, d.day)
		if err != nil {
			return nil, err
		}
		never = has.Objects+has.Datagrams == 0
	}
	for _, i := range d.plan.Remove {
		o := &d.objects[i]
		if never && !isPurged(o.Record) {
			continue
		}
		if !r.inside(o.Record) {
			d.cut = true
			continue
		}
		is, err := r.Catalog.Find(ctx, d.in.Instrument, o.Path)
		if err != nil && !errors.Is(err, catalog.ErrNotFound) {
			return nil, err
		}
		if p, ok := r.pathOf(d, o, false); ok && (err != nil || is.ID == o.Record.ID) {
			all = append(all, gone{path: p, record: o.Record})
		}
		if p, ok := r.pathOf(d, o, true); ok && r.policy.AllVersions {
			g := gone{path: p, record: o.Record}
			if err == nil && is.State == wire.StateCurrent {
				g.by, _ = r.pathOf(d, &plan.PushObject{Path: o.Path, Record: &is}, false)
			}
			all = append(all, g)
		}
	}
	return all, nil
}

// remove removes the copies of a day that must go, and confirms what was purged.
func (r *run) remove(ctx context.Context, d *pushed) error {
	all, err := r.gone(ctx, d)
	if err != nil {
		return err
	}
	for len(all) > 0 {
		some := all[:min(len(all), r.files)]
		all = all[len(some):]
		if err := r.removeSome(ctx, d, some); err != nil {
			return err
		}
	}
	if d.stays || d.failed > 0 {
		return nil
	}
	for _, i := range d.plan.Remove {
		if o := d.objects[i].Record; isPurged(o) && r.inside(o) {
			if err := r.Book.Confirm(ctx, d.in.Instrument, d.day, o.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// isPurged says whether somebody purged an object, which is asked of partners also where the book does not know that they have it.
func isPurged(r *wire.Record) bool { return r.State == wire.StatePurged && !plan.Expired(r) }

func (r *run) removeSome(ctx context.Context, d *pushed, some []gone) error {
	if err := r.Pause(ctx); err != nil {
		return err
	}
	paths, of := make([]string, len(some)), make(map[string]gone, len(some))
	for i, g := range some {
		paths[i], of[g.path] = g.path, g
	}
	there, err := r.has(ctx, paths)
	if err != nil || len(there) == 0 {
		return err
	}
	if !r.Force && len(there) > r.removable {
		d.stays = true
		if r.stop == nil { // more was retracted meanwhile
			r.stopped(len(there), r.removable)
		}
		return nil
	}
	told, err := r.tell(ctx, d, there, of)
	if err != nil || len(told) == 0 {
		return err
	}
	var kept *KeptError
	if err := r.Mover.Remove(ctx, told); errors.As(err, &kept) {
		d.failed++
		r.owe(told[0], err)
		r.Progress.End(0, false)
		r.Logger.Error("the partner keeps copies that it is to remove: the next run asks again", "instrument", d.in.Instrument, "day", d.day, "error", err)
		return nil
	} else if err != nil {
		return err
	}
	r.removable -= len(told)
	d.removed += len(told)
	r.Progress.Remove(len(told))
	return nil
}

// TombstoneSuffix ends the name of a file that tells why there is no copy any more.
const TombstoneSuffix = ".retracted.json"

// Tombstone is what it says, in the words of the archive's records.
type Tombstone struct {
	// Path that the copy had at the partner.
	Path   string      `json:"path"`
	ID     string      `json:"id"`
	Digest wire.Digest `json:"sha256"`
	Size   int64       `json:"size"`
	State  wire.State  `json:"state"`
	Reason string      `json:"reason,omitempty"`
	// RetractedAt and PurgedAt are when it was.
	RetractedAt *time.Time `json:"retractedAt,omitempty"`
	PurgedAt    *time.Time `json:"purgedAt,omitempty"`
	ReceivedAt  time.Time  `json:"receivedAt"`
	Version     int        `json:"version,omitempty"`
	// ReplacedBy is the path of the current version.
	ReplacedBy string `json:"replacedBy,omitempty"`
}

// tell leaves a tombstone beside each copy that has one, before it goes: a run that is killed in between finds the copy again.
// It returns the paths of the copies that may go.
func (r *run) tell(ctx context.Context, d *pushed, there []string, of map[string]gone) (may []string, err error) {
	var files []File
	var at []string
	for _, p := range there {
		g := of[p]
		if !r.policy.Tombstone(g.record) {
			may = append(may, p)
			continue
		}
		f, err := tombstone(g)
		if err != nil {
			return nil, err
		}
		if len(path.Base(f.Path)) > 255 {
			r.Logger.Warn("the name of a copy is too long for a file beside it that says why it is gone", "path", p, "reason", g.record.Reason)
			may = append(may, p)
			continue
		}
		files, at = append(files, f), append(at, p)
	}
	if len(files) == 0 {
		return may, nil
	}
	err = r.Mover.Deliver(ctx, files, true, func(i int, err error) {
		if err == nil {
			may = append(may, at[i])
			return
		}
		d.failed++
		r.owe(files[i].Path, err)
		r.Logger.Error("the partner does not take a file that says why a copy is gone: the copy stays", "path", files[i].Path, "error", err)
	})
	return may, err
}

func tombstone(g gone) (File, error) {
	r := g.record
	text, err := json.MarshalIndent(Tombstone{
		Path: g.path, ID: r.ID, Digest: r.Digest, Size: r.Size, State: r.State, Reason: r.Reason,
		RetractedAt: r.RetractedAt, PurgedAt: r.PurgedAt, ReceivedAt: r.ReceivedAt, Version: r.Version, ReplacedBy: g.by,
	}, "", "  ")
	if err != nil {
		return File{}, err
	}
	text = append(text, '\n')
	modified := r.ChangedAt()
	if modified.IsZero() {
		modified = r.ReceivedAt
	}
	return File{
		Path: g.path + TombstoneSuffix, Size: int64(len(text)), Modified: modified, Digest: sha256.Sum256(text), MediaType: "application/json",
		Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
	}, nil
}

// clear removes the tombstones of paths that have an object again.
func (r *run) clear(ctx context.Context, files []File, ended []error) error {
	var paths []string
	for i, f := range files {
		if f.clears && ended[i] == nil {
			paths = append(paths, f.Path+TombstoneSuffix)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	var kept *KeptError
	if err := r.Mover.Remove(ctx, paths); errors.As(err, &kept) {
		r.Logger.Warn("the partner keeps files that say why copies are gone, beside copies that are there again", "error", err)
	} else if err != nil {
		return err
	}
	return nil
}
