// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/pack"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

// Small objects drain in packs, as they would have without the spool. Their IDs do not say in
// which: if a gateway stores a pack and is killed before it announced the members, the gateway that
// drains them then stores the pack again, under another key. The manifest's writer lists the first
// place of an object with a known ID, and a pack that no manifest names is removed when the day is
// compacted.

const (
	// drainedPacks are draining at a time, beside drainAlone.
	drainedPacks = 4
	// memberCost is about what a member takes until it is announced and forgotten:
	// its record three times, a goroutine. Its bytes stay on the disk.
	memberCost = 16 << 10
	// defaultPackMembers are in a pack at most if there is no budget for packs, minPackMembers if
	// that is very small.
	defaultPackMembers, maxPackMembers, minPackMembers = 256, 512, 16
	// packWait is how long a pack waits for more members while others are on
	// their way or more waits on the disk.
	packWait = 50 * time.Millisecond
)

// sharesPack says whether a spooled object drains in a pack: its ID was made
// for that.
func sharesPack(e *spool.Entry) bool {
	n := &e.Notice
	return !e.Stored && n.Name == "" && n.ID == wire.SpooledID(*n)
}

// packMembers is how many members a pack from the spool has at most.
func (a *Archive) packMembers() int {
	if a.cfg.Packs == nil {
		return defaultPackMembers
	}
	n := int(a.cfg.Packs.Stats().Budget / (drainedPacks * memberCost))
	return max(minPackMembers, min(n, maxPackMembers))
}

// gatherer makes packs of what comes from the spool.
type gatherer struct {
	archive  *Archive
	small    chan *spool.Entry
	inFlight atomic.Int64

	mu   sync.Mutex // of the goroutine that gathers
	held *spool.Entry
}

// drainPacks drains packs until ctx ends.
func (g *gatherer) drainPacks(ctx context.Context) {
	for {
		entries := g.gather(ctx)
		if len(entries) == 0 {
			return
		}
		g.inFlight.Add(1)
		g.archive.drainPack(ctx, entries)
		g.inFlight.Add(-1)
	}
}

// gather returns objects of one day for a pack, or none once ctx has ended.
func (g *gatherer) gather(ctx context.Context) []*spool.Entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := g.held
	g.held = nil
	if first == nil {
		select {
		case first = <-g.small:
		case <-ctx.Done():
			return nil
		}
	}
	entries, size, day := []*spool.Entry{first}, pack.Need(first.Notice), wire.DayOf(first.Notice.ReceivedAt)
	late := time.NewTimer(packWait)
	defer late.Stop()
	for most := g.archive.packMembers(); len(entries) < most; {
		if g.inFlight.Load() == 0 && !g.archive.cfg.Spool.More() {
			return entries // a lone object waits for nothing
		}
		select {
		case e := <-g.small:
			size += pack.Need(e.Notice)
			if size > pack.MaxSize || wire.DayOf(e.Notice.ReceivedAt) != day {
				g.held = e
				return entries
			}
			entries = append(entries, e)
		case <-late.C:
			return entries
		case <-ctx.Done():
			return entries
		}
	}
	return entries
}

// drainPack drains small objects. Objects that cannot be read now are tried again.
func (a *Archive) drainPack(ctx context.Context, entries []*spool.Entry) {
	for len(entries) > 0 && ctx.Err() == nil {
		p := a.newPacking(entries)
		switch err := p.storeOrRefuse(ctx); {
		case ctx.Err() != nil:
		case errors.Is(err, errUnstorable):
			a.drainMembers(ctx, p, err)
		default:
			a.settlePack(ctx, p)
		}
		if entries = p.unread; len(entries) > 0 {
			retry.Sleep(ctx, drainPause)
		}
	}
}

// storeOrRefuse tries until the pack is stored. Errors: errUnstorable, ctx's.
func (p *packing) storeOrRefuse(ctx context.Context) error {
	return p.archive.retry(ctx, func() error { return p.store(ctx) }, func(err error) {
		p.archive.cfg.Logger.Error("cannot store a pack from the spool; retrying", "key", p.key, "members", len(p.entries), "error", err)
	})
}

// drainMembers drains the members of a pack by themselves that the store does not
// take: what of them it does not take either goes to quarantine.
func (a *Archive) drainMembers(ctx context.Context, p *packing, why error) {
	a.cfg.Logger.Error("the store does not take a pack from the spool; storing its members separately", "key", p.key, "members", len(p.entries), "error", why)
	var all errgroup.Group
	all.SetLimit(drainAlone)
	for _, e := range p.entries {
		all.Go(func() error { a.report(ctx, a.drainEntry(ctx, e)); return nil })
	}
	_ = all.Wait()
	p.entries, p.notices = nil, nil
	a.settlePack(ctx, p)
}

// settlePack finishes what is in a pack that is stored, and what is lost.
func (a *Archive) settlePack(ctx context.Context, p *packing) {
	var all sync.WaitGroup
	for i, e := range p.entries {
		all.Go(func() { a.report(ctx, a.announceStored(ctx, e, p.notices[i])) })
	}
	for _, e := range p.corrupt {
		all.Go(func() { a.report(ctx, a.quarantine(e, spool.ErrCorrupt)) })
	}
	all.Wait()
}

// packing is a pack of objects in a spool, which may be tried several times: under one key as long
// as it is the same.
type packing struct {
	archive *Archive
	key     string
	digest  wire.Digest
	// broughtBy is the gateway that drains copies of another one's spool.
	broughtBy string
	// entries that are in it, and their notices with their places.
	entries []*spool.Entry
	notices []wire.Notice
	// corrupt are lost, unread cannot be read now: they are not in it.
	corrupt, unread []*spool.Entry
}

func (a *Archive) newPacking(entries []*spool.Entry) *packing {
	return &packing{archive: a, entries: entries}
}

// store tries once. Errors: of the store, ctx's. There may be nothing to store.
func (p *packing) store(ctx context.Context) error {
	a := p.archive
	assembly, digest, err := p.assemble()
	if err != nil || len(p.entries) == 0 {
		return err
	}
	if digest != p.digest {
		p.digest = digest
		p.key = wire.PackKey(a.cfg.Site, p.entries[0].Notice.ReceivedAt, a.cfg.Gateway, a.cfg.Incarnation, a.packers.number.Add(1))
	}
	for i := range p.notices {
		p.notices[i].Key = p.key
	}
	return a.putPackOf(ctx, p.key, func() io.ReadSeekCloser { return assembly.Reader() }, assembly.Size(), digest, len(p.entries))
}

// assemble puts together what can be read, and sets the rest apart.
func (p *packing) assemble() (*pack.Assembly, wire.Digest, error) {
	for {
		assembly := &pack.Assembly{}
		p.notices = p.notices[:0]
		for _, e := range p.entries {
			n := e.Notice
			n.BroughtBy = p.broughtBy
			n, err := assembly.Add(n, func() (pack.Body, error) { return e.Reader() })
			if err != nil {
				return nil, wire.Digest{}, err
			}
			p.notices = append(p.notices, n)
		}
		digest, err := assembly.Digest()
		var bad *pack.MemberError
		if !errors.As(err, &bad) {
			return assembly, digest, err
		}
		p.leaveOut(bad)
	}
}

// leaveOut sets a member apart. If its bytes have the checksum of the spool, but differ
// from what was received, it was read or received wrongly.
func (p *packing) leaveOut(bad *pack.MemberError) {
	e := p.entries[bad.Member]
	var left []*spool.Entry
	left = append(append(left, p.entries[:bad.Member]...), p.entries[bad.Member+1:]...)
	p.entries = left
	err := e.Verify()
	if err == nil && errors.Is(bad.Err, pack.ErrDamaged) {
		err = checkDigest(e)
	}
	if errors.Is(err, spool.ErrCorrupt) {
		p.corrupt = append(p.corrupt, e)
		return
	}
	p.archive.cfg.Logger.Error("cannot read a spooled object; retrying", "key", e.Notice.Key, "error", bad.Err)
	p.unread = append(p.unread, e)
}

// checkDigest reads an object once more, and returns spool.ErrCorrupt if its digest is not the one with
// which it was received.
func checkDigest(e *spool.Entry) error {
	body, err := e.Reader()
	if err != nil {
		return err
	}
	defer body.Close()
	if err := pack.Check(body, e.Notice.Record); errors.Is(err, pack.ErrDamaged) {
		return spool.ErrCorrupt
	}
	return err
}
