// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/gateway"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
)

const (
	// bundlesAtOnce are read at the same time. A feed server sends few at a time.
	bundlesAtOnce = 4
	// bytesAtOnce is what objects that were read, and have no receipt yet, take of memory, and objectsAtOnce how many of a bundle these
	// are at most: each waits in a goroutine for a connection to a gateway, so that the reader of the bundle does not.
	bytesAtOnce   = 64 << 20
	objectsAtOnce = 256
)

// fetch brings what is missing of some days to the gateways.
func (r *run) fetch(ctx context.Context, days []*day) error {
	var wanted []plan.Wanted
	for _, d := range days {
		lines := make([]plan.Line, len(d.lines))
		for i := range d.lines {
			lines[i].Entry = d.lines[i]
		}
		wanted = append(wanted, plan.Wanted{Instrument: d.in.name, Day: d.day, Lines: lines, Missing: d.Fetch, Partial: d.partial})
	}
	bundles, large := plan.Batches(wanted)
	f := &fetching{run: r, days: days, memory: semaphore.NewWeighted(bytesAtOnce)}
	parent := ctx
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(bundlesAtOnce)
	for _, b := range bundles {
		group.Go(func() error { return f.bundle(ctx, b) })
	}
	for _, part := range large {
		group.Go(func() error { return f.large(ctx, days[part.Of], part.Missing[0]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return f.recheckRefused(parent)
}

// fetching is what the fetches of some days share.
type fetching struct {
	*run
	days   []*day
	memory *semaphore.Weighted

	mu sync.Mutex // of what did not come of days
	// refused are those that the other side did not give.
	refused []refused
}

// refused is an object that the other side did not give.
type refused struct {
	place
	moving *push.Moving
	why    error
}

// noteEnd counts an object that is here, or is not. An error ends the run.
func (f *fetching) noteEnd(d *day, i int, moving *push.Moving, err error) error {
	e := &d.lines[i]
	var gone *https.RefusedError
	var differs *folder.DigestError
	var full *scratchError
	switch {
	case err == nil:
		moving.End(true)
		return nil
	case errors.As(err, &gone) && gone.Status != http.StatusUnauthorized && gone.Status != http.StatusForbidden:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.refused = append(f.refused, refused{place{d, i}, moving, err})
		return nil
	case f.gateways.Final(err), errors.As(err, &differs), errors.As(err, &full), errors.Is(err, folder.ErrPath):
		f.log.Add(slog.LevelError, "objects are not mirrored", "instrument", d.in.name, "path", e.Path, "error", err)
	default:
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.countOwed(d, i, moving, err)
	if full != nil {
		f.full = full
	}
	return nil
}

// countOwed counts an object that is owed.
func (f *fetching) countOwed(d *day, i int, moving *push.Moving, why error) {
	moving.End(false)
	d.left++
	f.owes(d.in.name, d.lines[i].Path, why)
}

// recheckRefused looks again at the lists of days with objects that the other side did not give. Objects that are listed otherwise by now,
// because a newer version came meanwhile or they were retracted, are not owed: the next run does what is listed then.
func (f *fetching) recheckRefused(ctx context.Context) error {
	listings := map[*day]plan.Listing{}
	for _, o := range f.refused {
		if _, known := listings[o.day]; known {
			continue
		}
		answers, err := f.Source.Lists(ctx, []mirrorindex.ListQuestion{{Instrument: o.day.in.name, Day: o.day.day}})
		if err != nil {
			return problemOf(err)
		}
		listings[o.day] = plan.ListingOf(answers[0].Entries)
	}
	for _, o := range f.refused {
		e := &o.day.lines[o.line]
		if !listings[o.day].Has(e) {
			f.Logger.Info("an object has changed at the other side: the next run looks at it again", "instrument", o.day.in.name, "path", e.Path, "id", e.ID)
			o.moving.Forget()
			o.day.again++
			continue
		}
		f.log.Add(slog.LevelError, "objects are not mirrored", "instrument", o.day.in.name, "path", e.Path, "error", o.why)
		f.countOwed(o.day, o.line, o.moving, o.why)
	}
	return nil
}

// place is a line of a day.
type place struct {
	day  *day
	line int
}

// bundle reads one, and sends what is in it to the gateways meanwhile.
func (f *fetching) bundle(ctx context.Context, b plan.Batch) error {
	open := map[string]place{}
	for _, part := range b.Parts {
		d := f.days[part.Of]
		for _, i := range part.Missing {
			key := keyOf(d.in.name, d.lines[i].ID)
			if _, twice := open[key]; twice { // a bundle has one object of an ID
				if err := f.noteEnd(d, i, f.Progress.Begin(d.lines[i].Size), f.absent(d, i)); err != nil {
					return err
				}
				continue
			}
			open[key] = place{d, i}
		}
	}
	sending, sendCtx := errgroup.WithContext(ctx)
	sending.SetLimit(objectsAtOnce)
	err := f.Source.Objects(ctx, f.origin, b.Questions, b.Bytes, func(name, path, id string, size int64, body io.Reader) error {
		key := keyOf(name, id)
		at, is := open[key]
		if !is || size != at.day.lines[at.line].Size || path != at.day.lines[at.line].Path {
			return nil // it came before the link broke; it was not asked for; or it is listed otherwise by now
		}
		if err := f.memory.Acquire(sendCtx, size); err != nil {
			return err
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(body, data); err != nil {
			f.memory.Release(size)
			return err
		}
		moving := f.Progress.Begin(size)
		moving.Move(size)
		delete(open, key)
		sending.Go(func() error {
			defer f.memory.Release(size)
			return f.noteEnd(at.day, at.line, moving, f.gateways.Put(sendCtx, f.object(at.day, at.line, gateway.Bytes(data))))
		})
		return nil
	})
	if sent := sending.Wait(); sent != nil {
		return sent
	}
	if err != nil {
		return problemOf(err)
	}
	for _, at := range open { // the other side cannot give them now
		if err := f.noteEnd(at.day, at.line, f.Progress.Begin(at.day.lines[at.line].Size), f.absent(at.day, at.line)); err != nil {
			return err
		}
	}
	return nil
}

// keyOf is how a bundle names an object: two of them may have one path.
func keyOf(instrument, id string) string { return instrument + "/" + id }

// absent is the error of an object that a bundle does not have.
func (f *fetching) absent(d *day, i int) error {
	return &https.RefusedError{URL: d.lines[i].Path, Status: http.StatusNotFound}
}

func (r *run) object(d *day, i int, open func() (io.ReadCloser, error)) gateway.Object {
	e := &d.lines[i]
	return gateway.Object{Instrument: d.in.guest, Open: open, Record: wire.MirroredObject{
		Origin: &wire.Origin{Site: r.origin, ID: e.ID}, Path: e.Path, Size: e.Size, Digest: e.Digest, MediaType: e.MediaType, Listed: d.Again[i], Version: e.Version,
		ObservedFrom: e.ObservedFrom, ObservedTo: e.ObservedTo, ReceivedAt: e.ReceivedAt, TimeSource: e.TimeSource, Completeness: e.Completeness,
	}}
}

// large brings a large object once there is space for it in the scratch.
func (f *fetching) large(ctx context.Context, d *day, i int) error {
	e := &d.lines[i]
	place := scratchOf(d.in.guest, e)
	held, err := f.Scratch.PartBytes(place, e)
	if err != nil {
		return fmt.Errorf("scratch for %s/%s: %w", d.in.name, e.Path, err)
	}
	needs := max(0, e.Size-held)
	moving := f.Progress.Begin(e.Size)
	if err := f.disk.take(ctx, needs); err != nil {
		return f.noteEnd(d, i, moving, err)
	}
	left, err := f.sendLarge(ctx, place, d, i, moving)
	if left {
		f.disk.giveBack(needs, 0)
	} else {
		f.disk.giveBack(needs, needs+held)
	}
	return err
}

// sendLarge puts a large object together in scratch, and sends it from there. Parts of it are left there where the other side does
// not give the rest.
func (f *fetching) sendLarge(ctx context.Context, place string, d *day, i int, moving *push.Moving) (left bool, err error) {
	e := &d.lines[i]
	l, err := f.Scratch.Large(place, e)
	if errors.Is(err, folder.ErrPath) {
		return false, f.noteEnd(d, i, moving, err)
	}
	if err != nil {
		return true, fmt.Errorf("scratch for %s/%s: %w", d.in.name, e.Path, err)
	}
	var refused *https.RefusedError
	if e.Is() == wire.StateCurrent {
		err = f.parts(ctx, d, e, l, moving)
	}
	if e.Is() == wire.StateSuperseded || errors.As(err, &refused) && refused.Status == http.StatusPreconditionFailed { // another object has its path
		err = f.whole(ctx, d, e, l, moving)
	}
	if err != nil {
		err = errors.Join(err, l.Close())
		var disk *fs.PathError
		switch {
		case errors.As(err, &refused):
			return true, f.noteEnd(d, i, moving, err)
		case errors.As(err, &disk):
			return true, fmt.Errorf("scratch for %s/%s: %w", d.in.name, e.Path, err)
		default:
			return true, problemOf(err)
		}
	}
	if err := l.Finish(); err != nil {
		return false, f.noteEnd(d, i, moving, err)
	}
	err = f.gateways.Put(ctx, f.object(d, i, func() (io.ReadCloser, error) { return f.Scratch.OpenObject(place, e) }))
	_, notRemoved := f.Scratch.Remove(place, e, nil)
	return false, f.noteEnd(d, i, moving, errors.Join(err, notRemoved))
}

// scratchOf is where an object is put together: versions of one path are there at a time.
func scratchOf(guest string, e *mirrorindex.Entry) string {
	id := sha256.Sum256([]byte(e.ID))
	return guest + "-" + hex.EncodeToString(id[:8])
}

// parts fetches an object in parts that come at the same time.
func (f *fetching) parts(ctx context.Context, d *day, e *mirrorindex.Entry, l *folder.Large, moving *push.Moving) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, f.Entry.Limits.Connections))
	missing := l.Parts()
	var left int64
	for _, n := range missing {
		_, length := l.Range(n)
		left += length
	}
	moving.Resize(left) // the rest came in an earlier run
	for _, n := range missing {
		if ctx.Err() != nil { // one failed: a list may name any number of them
			break
		}
		offset, length := l.Range(n)
		group.Go(func() error {
			return f.Source.Part(ctx, d.in.name, e.Path, e.Digest, offset, length, func(had int64, body io.Reader) error { return l.Write(n, had, moving.Reader(body)) })
		})
	}
	return group.Wait()
}

// whole fetches a superseded object, which has no path to be asked for by, in one piece.
func (f *fetching) whole(ctx context.Context, d *day, e *mirrorindex.Entry, l *folder.Large, moving *push.Moving) error {
	came := false
	question := mirrorindex.ObjectsQuestion{Instrument: d.in.name, Day: d.day, IDs: []string{e.ID}}
	err := f.Source.Objects(ctx, f.origin, []mirrorindex.ObjectsQuestion{question}, e.Size, func(_, _, id string, size int64, body io.Reader) error {
		if id != e.ID || size != e.Size {
			return nil
		}
		came = true
		return l.WriteAll(moving.Reader(body))
	})
	if err == nil && !came {
		err = &https.RefusedError{URL: e.Path, Status: http.StatusNotFound}
	}
	return err
}
