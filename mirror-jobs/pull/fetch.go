// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/wire"
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
	for n, part := range b.Parts {
		d := b.days[part.Of]
		for _, i := range part.Missing {
			open[d.in.Instrument+"/"+d.lines[i].Path] = place{n, i}
		}
	}
	held := make([][]int, len(b.Parts))
	var buffer []byte // of the largest object so far, LargeFrom at most
	err := p.Source.Objects(ctx, p.site, b.Questions, b.Bytes, func(instrument, path, id string, size int64, body io.Reader) error {
		at, is := open[instrument+"/"+path]
		if !is || id != "" {
			return nil // it came before the link broke; or nobody asked for it
		}
		e := &b.days[b.Parts[at.part].Of].lines[at.line].Entry
		if size != e.Size {
			return nil // another has its path by now: a later run gets it
		}
		if int64(cap(buffer)) < size {
			buffer = make([]byte, size)
		}
		if _, err := io.ReadFull(body, buffer[:size]); err != nil {
			return err
		}
		err := w.Put(instrument, e, buffer[:size])
		if err != nil {
			return p.unless(err, instrument, path)
		}
		delete(open, instrument+"/"+path)
		held[at.part] = append(held[at.part], at.line)
		p.Progress.got(1, size)
		return nil
	})
	if err == nil {
		p.Progress.fail(len(open))
	}
	for n, part := range b.Parts {
		d, failed := b.days[part.Of], len(part.Missing)-len(held[n])
		if err != nil {
			failed = 0 // they stay open
		}
		if d.got(held[n], failed) {
			p.isReady(d)
		}
	}
	return err
}

// unless says that one object is not mirrored, where that is about this object alone; any other
// error ends the run.
func (p *run) unless(err error, instrument, path string) error {
	var differs *folder.DigestError
	alone := errors.As(err, &differs) || errors.Is(err, folder.ErrPath) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) ||
		errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ELOOP)
	if !alone {
		return fmt.Errorf("%s/%s: %w", instrument, path, err)
	}
	p.Logger.Error("an object is not mirrored", "instrument", instrument, "path", path, "error", err)
	return nil
}

// object fetches a large object, in parts at the same time.
func (p *run) object(ctx context.Context, b batch) error {
	d, i := b.days[b.Parts[0].Of], b.Parts[0].Missing[0]
	e := &d.lines[i].Entry
	l, err := p.Folder.Large(d.in.Instrument, e)
	if err == nil {
		err = p.parts(ctx, l, d.in.Instrument, e.Path, e.Digest)
	}
	held := []int{i}
	if err != nil {
		var refused *https.RefusedError
		if !errors.As(err, &refused) {
			if err = p.unless(err, d.in.Instrument, e.Path); err != nil {
				return err
			}
		} else if refused.Status == 401 || refused.Status == 403 {
			return err
		} else {
			p.Logger.Error("an object is not mirrored", "instrument", d.in.Instrument, "path", e.Path, "error", err)
		}
		held = nil
		p.Progress.fail(1)
	} else {
		p.Progress.got(1, 0)
	}
	if d.got(held, 1-len(held)) {
		p.isReady(d)
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

func (p *run) parts(ctx context.Context, l *folder.Large, instrument, path string, digest wire.Digest) error {
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
		offset, length := l.Range(n)
		group.Go(func() error {
			return p.Source.Part(ctx, instrument, path, digest, offset, length, func(had int64, body io.Reader) error {
				return l.Write(n, had, &counted{body, p.Progress})
			})
		})
	}
	if err := group.Wait(); err != nil {
		return errors.Join(err, l.Close())
	}
	return l.Finish()
}
