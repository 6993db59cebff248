// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/ingest-gateway/archive/packer"
	"github.com/substorm/substorm/internal/boottime"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// discardFor is how long after its first byte went out a pack may be removed
	// again: long before the archivist's sweep, which announces what it finds,
	// looks at it.
	discardFor = 5 * time.Minute
	// discardPause is between looks for packs to remove. A request may arrive after
	// it was given up, as where the store was paused: each pack is removed again
	// after firstDiscard, and after pauses that grow by a factor.
	discardPause  = time.Second
	firstDiscard  = 4 * time.Second
	discardFactor = 4
	// maxDiscards are remembered; members of others are announced by the sweep,
	// and withdrawn as the repeats they are.
	maxDiscards = 4096
)

// packers are the packers of objects by what happens where the store is away:
// a pack must not be late for those that could be in the spool by then, nor be
// given up for those that could not.
type packers struct {
	patient, spooling *packer.Packer
	number            atomic.Uint64

	mu       sync.Mutex
	discards []discard
}

// discard is a pack that may be stored although nobody could be told so.
type discard struct {
	key string
	// next and until are of the clock that runs on while the machine is suspended: later
	// another may list what the pack holds.
	next, until, pause time.Duration
}

func (a *Archive) openPackers() {
	newPacker := func(put func(context.Context, string, io.ReadSeeker, int64, wire.Digest, int) error) *packer.Packer {
		return packer.NewPacker(packer.Config{
			Site: a.cfg.Site, Gateway: a.cfg.Gateway, Incarnation: a.cfg.Incarnation, Number: &a.packers.number,
			Pool: a.cfg.Pool, Reserve: a.cfg.Packs, Put: put, Discard: a.discardPack,
		})
	}
	a.packers.patient = newPacker(a.putPack)
	a.packers.spooling = newPacker(func(ctx context.Context, key string, body io.ReadSeeker, size int64, digest wire.Digest, members int) error {
		ctx, cancel := context.WithTimeout(ctx, a.cfg.ShortWait+time.Duration(size)*time.Second/brisk)
		defer cancel()
		return a.putPack(ctx, key, body, size, digest, members)
	})
}

func (a *Archive) putPack(ctx context.Context, key string, body io.ReadSeeker, size int64, digest wire.Digest, members int) error {
	return a.putPackOf(ctx, key, func() io.ReadSeekCloser { return keptOpen{body} }, size, digest, members)
}

// keptOpen is a reader that somebody else closes, if anybody.
type keptOpen struct{ io.ReadSeeker }

func (keptOpen) Close() error { return nil }

// putPackOf stores a pack, which each try opens anew.
func (a *Archive) putPackOf(ctx context.Context, key string, open func() io.ReadSeekCloser, size int64, digest wire.Digest, members int) error {
	opts := objectstore.PutOptions{
		ContentType: wire.MediaTypePack, Digest: digest, CreateOnly: true,
		Metadata: map[string]string{wire.MetadataFormat: strconv.Itoa(wire.Format), wire.MetadataMembers: strconv.Itoa(members)},
	}
	err := a.request(ctx, "pack", size, func(ctx context.Context) error {
		body := open()
		defer body.Close()
		err := a.cfg.Objects.Put(ctx, key, body, size, opts)
		if errors.Is(err, objectstore.ErrExists) {
			return nil // a try whose answer was lost had arrived: the key is nobody else's
		}
		return err
	})
	if err == nil {
		a.metrics.packs.Inc()
		a.metrics.packed.Add(float64(members))
	}
	return err
}

// mayPack says whether the object is one of those that share packs. What lay in
// scratch goes to the store under its own digest.
func (o *Object) mayPack() bool { return o.isSmall() && o.buffer.InMemory() }

// isSmall says whether the object belongs into a pack.
func (o *Object) isSmall() bool {
	return o.name == "" && o.parts == nil && len(o.spooled) == 0 && o.size > 0 && o.size <= o.instrument.PackBelow
}

// pack stores the object in a pack or, as acknowledge allows, the spool; false
// where there is no room for that.
func (o *Object) pack(ctx context.Context, digest wire.Digest) (n wire.Notice, spooled, packed bool, err error) {
	a := o.archive
	raw := o.notice(o.receivedAt, digest)
	to, may := a.packers.patient, o.maySpool()
	if may {
		to = a.packers.spooling
	}
	m, err := to.Add(raw, o.buffer.Reader())
	if errors.Is(err, packer.ErrNoRoom) {
		return raw, false, false, nil
	}
	if err != nil {
		return raw, false, true, err
	}
	defer m.Release()
	o.buffer.Release()
	err = m.Wait(ctx)
	if err != nil && may && isAway(err) {
		raw.ID = wire.SpooledID(raw)
		return raw, true, true, o.spoolBytes(ctx, raw, m.Reader())
	}
	return m.Notice, false, true, err
}

// discardPack notes a pack that must go, if it exists: its members are elsewhere,
// or will be sent again.
func (a *Archive) discardPack(key string) {
	a.packers.mu.Lock()
	defer a.packers.mu.Unlock()
	now := boottime.Now()
	if len(a.packers.discards) < maxDiscards {
		a.packers.discards = append(a.packers.discards, discard{key, now, now + discardFor, firstDiscard})
	}
}

// discardPacks removes what discardPack noted, until ctx ends.
func (a *Archive) discardPacks(ctx context.Context) {
	for pause(ctx, discardPause) {
		a.packers.mu.Lock()
		all := a.packers.discards
		a.packers.discards = nil
		a.packers.mu.Unlock()
		left := all[:0]
		for i, d := range all {
			again, err := a.discardOnce(ctx, d)
			if err != nil { // the next try is for all that is left
				left = append(left, all[i:]...)
				break
			}
			if again.pause > 0 {
				left = append(left, again)
			}
		}
		a.packers.mu.Lock()
		a.packers.discards = append(a.packers.discards, left...)
		a.packers.mu.Unlock()
	}
}

// discardOnce removes a pack where it is time for that, and returns when that is
// to be done again: zero for never.
func (a *Archive) discardOnce(ctx context.Context, d discard) (discard, error) {
	switch now := boottime.Now(); {
	case now > d.until:
		return discard{}, nil
	case now < d.next:
		return d, nil
	}
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	if err := a.cfg.Objects.Delete(ctx, d.key); err != nil {
		return d, err
	}
	d.next, d.pause = boottime.Now()+d.pause, discardFactor*d.pause
	return d, nil
}
