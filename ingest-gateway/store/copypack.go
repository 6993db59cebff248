// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/wire"
)

// copiesAtOnce is how many copies drain by themselves at a time.
const copiesAtOnce = 8

// DrainCopies archives objects from this gateway's copies, as DrainCopy does, small ones in packs.
// It returns an error for each that is not archived.
func (a *Archive) DrainCopies(ctx context.Context, entries []*spool.Entry) []error {
	errs := make([]error, len(entries))
	var alone errgroup.Group
	alone.SetLimit(copiesAtOnce)
	days := map[listedDay][]int{}
	for i, e := range entries {
		if !sharesPack(e) {
			alone.Go(func() error { errs[i] = a.DrainCopy(ctx, e); return nil })
			continue
		}
		of := listedDay{e.Notice.Instrument, wire.DayOf(e.Notice.ReceivedAt)}
		days[of] = append(days[of], i)
	}
	for of, small := range days {
		a.drainListed(ctx, of, entries, small, errs)
	}
	_ = alone.Wait()
	return errs
}

// listedDay is an instrument's day.
type listedDay struct {
	instrument string
	day        wire.Day
}

// drainListed drains copies of one instrument and day that no manifest lists.
func (a *Archive) drainListed(ctx context.Context, of listedDay, entries []*spool.Entry, small []int, errs []error) {
	archived, err := a.whichListed(ctx, of, entries, small)
	if err != nil {
		for _, i := range small {
			errs[i] = err
		}
		return
	}
	var batch []int
	size := int64(0)
	for _, i := range small {
		if archived[entries[i].Notice.ID] {
			continue
		}
		need := pack.Need(entries[i].Notice)
		if len(batch) == a.packMembers() || size+need > pack.MaxSize {
			a.packCopies(ctx, entries, batch, errs)
			batch, size = nil, 0
		}
		batch, size = append(batch, i), size+need
	}
	a.packCopies(ctx, entries, batch, errs)
}

// whichListed says which objects the manifests list already. One that was announced
// within the last minutes may be missing: its second notice changes nothing.
func (a *Archive) whichListed(ctx context.Context, of listedDay, entries []*spool.Entry, small []int) (map[string]bool, error) {
	asked := make(map[string]bool, len(small))
	for _, i := range small {
		asked[entries[i].Notice.ID] = false
	}
	files, err := manifest.List(ctx, a.cfg.Objects, a.cfg.Site, of.instrument, of.day)
	if err != nil {
		return nil, err
	}
	for r, err := range files.Lines(ctx, a.cfg.Objects) {
		if err != nil {
			return nil, err
		}
		if _, found := asked[r.ID]; found {
			asked[r.ID] = true
		}
	}
	return asked, nil
}

// packCopies stores one pack and announces what it holds.
func (a *Archive) packCopies(ctx context.Context, entries []*spool.Entry, batch []int, errs []error) {
	if len(batch) == 0 {
		return
	}
	of := map[*spool.Entry]int{}
	p := a.newPacking(nil)
	for _, i := range batch {
		of[entries[i]] = i
		p.entries = append(p.entries, entries[i])
		errs[i] = fmt.Errorf("%s is not in the pack", entries[i].Notice.ID)
	}
	p.broughtBy = a.cfg.Gateway
	err := p.store(ctx)
	for _, e := range p.corrupt {
		errs[of[e]] = spool.ErrCorrupt
	}
	if err != nil {
		for _, e := range p.entries {
			errs[of[e]] = err
		}
		return
	}
	var all sync.WaitGroup
	for i, e := range p.entries {
		all.Go(func() { errs[of[e]] = a.announceCopy(ctx, p.notices[i]) })
	}
	all.Wait()
}
