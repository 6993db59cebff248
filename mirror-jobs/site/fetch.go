// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/gateway"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

const (
	// bundlesAtOnce are read at the same time. A feed server sends few at a time.
	bundlesAtOnce = 4
	// bytesAtOnce is what objects that were read, and have no receipt yet, take of memory.
	bytesAtOnce = 64 << 20
)

// fetch brings what is missing of some days to the gateways.
func (r *run) fetch(ctx context.Context, days []*day) error {
	var wanted []plan.Wanted
	for _, d := range days {
		lines := make([]plan.Line, len(d.lines))
		for i := range d.lines {
			lines[i].Entry = d.lines[i]
		}
		wanted = append(wanted, plan.Wanted{Instrument: d.in.name, Day: d.day, Lines: lines, Missing: d.Fetch})
	}
	bundles, large := plan.Batches(wanted)
	f := &fetching{run: r, days: days, memory: semaphore.NewWeighted(bytesAtOnce)}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(bundlesAtOnce)
	for _, b := range bundles {
		group.Go(func() error { return f.bundle(ctx, b) })
	}
	for _, part := range large {
		group.Go(func() error { return f.large(ctx, days[part.Of], part.Missing[0]) })
	}
	return group.Wait()
}

// fetching is what the fetches of some days share.
type fetching struct {
	*run
	days   []*day
	memory *semaphore.Weighted

	mu sync.Mutex // of what did not come of days
}

// ended counts an object that is here, or is not. The error is one that ends the run.
func (f *fetching) ended(d *day, i int, err error) error {
	e := &d.lines[i]
	var gone *https.RefusedError
	var differs *folder.DigestError
	switch {
	case err == nil:
		f.Progress.End(e.Size, true)
		return nil
	case f.gateways.Final(err), errors.As(err, &gone) && gone.Status != 401 && gone.Status != 403,
		errors.As(err, &differs), errors.Is(err, folder.ErrPath), errors.Is(err, errLarge):
		f.Logger.Error("an object is not mirrored", "instrument", d.in.name, "path", e.Path, "error", err)
	default:
		return err
	}
	f.Progress.End(e.Size, false)
	f.mu.Lock()
	defer f.mu.Unlock()
	d.left++
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
			open[keyOf(d.in.name, &d.lines[i])] = place{d, i}
		}
	}
	sending, sendCtx := errgroup.WithContext(ctx)
	sending.SetLimit(max(1, f.Entry.Limits.Connections))
	err := f.Source.Objects(ctx, f.origin, b.Questions, func(name, path, id string, size int64, body io.Reader) error {
		key := name + "/" + path + "\x00" + id
		at, is := open[key]
		if !is || size != at.day.lines[at.line].Size {
			return nil // it came before the link broke; nobody asked for it; or another has its path by now
		}
		if size > plan.LargeFrom { // a superseded one, which has no path to be asked for by
			delete(open, key)
			return f.ended(at.day, at.line, errLarge)
		}
		if err := f.memory.Acquire(sendCtx, size); err != nil {
			return err
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(body, data); err != nil {
			f.memory.Release(size)
			return err
		}
		delete(open, key)
		sending.Go(func() error {
			defer f.memory.Release(size)
			return f.ended(at.day, at.line, f.gateways.Put(sendCtx, f.object(at.day, at.line, gateway.Bytes(data))))
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
		if err := f.ended(at.day, at.line, &https.RefusedError{URL: at.day.lines[at.line].Path, Status: 404}); err != nil {
			return err
		}
	}
	return nil
}

// errLarge: see bundle.
var errLarge = fmt.Errorf("a superseded version of more than %d bytes is not mirrored", plan.LargeFrom)

// keyOf is how a bundle names an object: a superseded one by its ID, too.
func keyOf(instrument string, e *mirrorindex.Entry) string {
	id := ""
	if e.Is() == wire.StateSuperseded {
		id = e.ID
	}
	return instrument + "/" + e.Path + "\x00" + id
}

func (r *run) object(d *day, i int, open func() (io.ReadCloser, error)) gateway.Object {
	e := &d.lines[i]
	return gateway.Object{Instrument: d.in.guest, Open: open, Record: wire.MirroredObject{
		Origin: &wire.Origin{Site: r.origin, ID: e.ID}, Path: e.Path, Size: e.Size, Digest: e.Digest, MediaType: e.MediaType, Version: e.Version,
		ObservedFrom: e.ObservedFrom, ObservedTo: e.ObservedTo, ReceivedAt: e.ReceivedAt, TimeSource: e.TimeSource, Completeness: e.Completeness,
	}}
}

// large puts a large object together in scratch, in parts that are fetched at the same time, and sends it from there.
func (f *fetching) large(ctx context.Context, d *day, i int) error {
	e := &d.lines[i]
	if e.Is() == wire.StateSuperseded {
		return f.ended(d, i, errLarge)
	}
	l, err := f.Scratch.Large(d.in.guest, e)
	if err != nil {
		return fmt.Errorf("scratch for %s/%s: %w", d.in.name, e.Path, err)
	}
	parts, partCtx := errgroup.WithContext(ctx)
	parts.SetLimit(max(1, f.Entry.Limits.Connections))
	for _, n := range l.Parts() {
		offset, length := l.Range(n)
		parts.Go(func() error {
			return f.Source.Part(partCtx, d.in.name, e.Path, e.Digest, offset, length, func(body io.Reader) error { return l.Write(n, body) })
		})
	}
	if err := parts.Wait(); err != nil {
		err = errors.Join(err, l.Close())
		var refused *https.RefusedError
		if errors.As(err, &refused) {
			return f.ended(d, i, err)
		}
		return problemOf(err)
	}
	if err := l.Finish(); err != nil {
		return f.ended(d, i, err)
	}
	err = f.gateways.Put(ctx, f.object(d, i, func() (io.ReadCloser, error) { return f.Scratch.OpenObject(d.in.guest, e) }))
	return f.ended(d, i, errors.Join(err, f.Scratch.Remove(d.in.guest, e)))
}
