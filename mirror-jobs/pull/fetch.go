// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// batch is a bundle, or without questions a large object.
type batch struct {
	plan.Batch
	// days are those that the parts mean.
	days []*day
}

func (p *run) fetchBundles(ctx context.Context) error {
	w := p.Folder.Writer()
	defer w.Close()
	for b := range p.bundles {
		if err := p.bundle(ctx, w, b); err != nil {
			return err
		}
	}
	return nil
}

func (p *run) fetchLarge(ctx context.Context) error {
	for b := range p.large {
		if err := p.object(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// place is a line of a day.
type place struct {
	part, line int
}

// bundle fetches one, and notes what came and what did not.
func (p *run) bundle(ctx context.Context, w *folder.Writer, b batch) error {
	open := map[string]place{}
	var refused []place
	for n, part := range b.Parts {
		d := b.days[part.Of]
		for _, i := range part.Missing {
			key := d.in.Instrument + "/" + d.lines[i].ID
			if _, twice := open[key]; twice { // a bundle has one object of an ID
				refused = append(refused, place{n, i})
				continue
			}
			open[key] = place{n, i}
		}
	}
	held := make([][]int, len(b.Parts))
	var aside []setAside
	w.Before = func(instrument string, e *mirrorindex.Entry) error {
		file, err := p.setAside(instrument, e)
		if file != nil {
			aside = append(aside, *file)
		}
		return err
	}
	var buffer []byte // of the largest object so far, LargeFrom at most
	err := p.Source.Objects(ctx, p.site, b.Questions, b.Bytes, func(instrument, path, id string, size int64, body io.Reader) error {
		at, is := open[instrument+"/"+id]
		if !is {
			return nil // it came before the link broke; or it was not asked for
		}
		e := &b.days[b.Parts[at.part].Of].lines[at.line].Entry
		if size != e.Size || path != e.Path {
			return nil // it is listed otherwise by now
		}
		if int64(cap(buffer)) < size {
			buffer = make([]byte, size)
		}
		if _, err := io.ReadFull(body, buffer[:size]); err != nil {
			return err
		}
		if err := w.Put(instrument, e, buffer[:size]); err != nil {
			return p.skipObject(err, instrument, path)
		}
		delete(open, instrument+"/"+id)
		held[at.part] = append(held[at.part], at.line)
		p.Progress.got(1, size)
		return nil
	})
	again := make([]int, len(b.Parts))
	if err == nil {
		err = p.settleAside(ctx, aside)
	}
	if err == nil {
		again, err = p.recheckRefused(ctx, b, slices.AppendSeq(refused, maps.Values(open)))
	}
	for n, part := range b.Parts {
		d, failed := b.days[part.Of], len(part.Missing)-len(held[n])-again[n]
		if err != nil {
			failed = 0 // they stay open
		}
		if d.noteOutcome(held[n], failed, again[n]) {
			p.markReady(d)
		}
	}
	return err
}

// recheckRefused looks again at the lists of days with objects that the other side did not give. It returns how many objects of each part are
// listed otherwise by now, because a newer version came meanwhile or they were retracted: the next run does what is listed then.
func (p *run) recheckRefused(ctx context.Context, b batch, refused []place) (again []int, err error) {
	again = make([]int, len(b.Parts))
	listings := map[*day]plan.Listing{}
	for _, at := range refused {
		d := b.days[b.Parts[at.part].Of]
		if _, known := listings[d]; !known {
			answers, err := p.Source.Lists(ctx, []mirrorindex.ListQuestion{{Instrument: d.in.Instrument, Day: d.day}})
			if err != nil {
				return again, err
			}
			listings[d] = plan.ListingOf(answers[0].Entries)
		}
		e := &d.lines[at.line].Entry
		if listings[d].Has(e) {
			p.log.Add(slog.LevelError, "objects are not mirrored: the other side lists them, and does not give them", "instrument", d.in.Instrument, "path", e.Path, "id", e.ID)
			p.Progress.fail(1)
			continue
		}
		p.Logger.Info("an object has changed at the other side: the next run looks at it again", "instrument", d.in.Instrument, "path", e.Path, "id", e.ID)
		p.Progress.owe(-1, -e.Size)
		again[at.part]++
	}
	return again, nil
}

// skipObject says that one object is not mirrored, where that is about this object alone; any other
// error ends the run.
func (p *run) skipObject(err error, instrument, path string) error {
	var differs *folder.DigestError
	alone := errors.As(err, &differs) || errors.Is(err, folder.ErrPath) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) ||
		errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ELOOP)
	if !alone {
		return fmt.Errorf("%s/%s: %w", instrument, path, err)
	}
	p.log.Add(slog.LevelError, "objects are not mirrored", "instrument", instrument, "path", path, "error", err)
	return nil
}

// object fetches a large object, in parts at the same time.
func (p *run) object(ctx context.Context, b batch) error {
	d, i := b.days[b.Parts[0].Of], b.Parts[0].Missing[0]
	e := &d.lines[i].Entry
	l, err := p.Folder.Large(d.in.Instrument, e)
	if err == nil {
		err = p.parts(ctx, l, d, e)
	}
	var refused *https.RefusedError
	var held, again []int
	switch {
	case err == nil:
		held = []int{i}
		p.Progress.got(1, 0)
	case !errors.As(err, &refused):
		if err = p.skipObject(err, d.in.Instrument, e.Path); err != nil {
			return err
		}
		p.Progress.fail(1)
	case refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden:
		return err
	default:
		if again, err = p.recheckRefused(ctx, b, []place{{0, i}}); err != nil {
			return err
		}
	}
	later := 0
	if len(again) > 0 {
		later = again[0]
	}
	if d.noteOutcome(held, 1-len(held)-later, later) {
		p.markReady(d)
	}
	return nil
}

// counted counts bytes of a large object while they come.
type counted struct {
	io.Reader
	progress *Progress
}

// Read implements io.Reader.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.progress.got(0, int64(n))
	return n, err
}

func (p *run) parts(ctx context.Context, l *folder.Large, d *day, e *mirrorindex.Entry) error {
	instrument, parent := d.in.Instrument, ctx
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(p.Connections)
	missing := l.Parts()
	had := l.Size()
	for _, n := range missing {
		_, length := l.Range(n)
		had -= length
	}
	p.Progress.had(had)
	for _, n := range missing {
		if ctx.Err() != nil { // one failed: a list may name any number of them
			break
		}
		offset, length := l.Range(n)
		group.Go(func() error {
			return p.Source.Part(ctx, instrument, e.Path, e.Digest, offset, length, func(had int64, body io.Reader) error {
				return l.Write(n, had, &counted{body, p.Progress})
			})
		})
	}
	err := group.Wait()
	var refused *https.RefusedError
	if errors.As(err, &refused) && refused.Status == http.StatusPreconditionFailed { // another object has its path
		err = p.whole(parent, l, d, e)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	var aside *setAside
	l.Before = func() (err error) {
		aside, err = p.setAside(instrument, e)
		return err
	}
	if err := l.Finish(); err != nil || aside == nil {
		return err
	}
	return p.settleAside(parent, []setAside{*aside})
}

// whole fetches an object in one piece, by its ID.
func (p *run) whole(ctx context.Context, l *folder.Large, d *day, e *mirrorindex.Entry) error {
	came := false
	question := mirrorindex.ObjectsQuestion{Instrument: d.in.Instrument, Day: d.day, IDs: []string{e.ID}}
	err := p.Source.Objects(ctx, p.site, []mirrorindex.ObjectsQuestion{question}, e.Size, func(_, _, id string, size int64, body io.Reader) error {
		if id != e.ID || size != e.Size {
			return nil
		}
		came = true
		return l.WriteAll(&counted{body, p.Progress})
	})
	if err == nil && !came {
		err = &https.RefusedError{URL: e.Path, Status: http.StatusNotFound}
	}
	return err
}
