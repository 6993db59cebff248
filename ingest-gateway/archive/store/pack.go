// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/substorm/substorm/ingest-gateway/archive/packer"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// packers are the packers of objects by what happens where the store is away:
// a pack must not be late for those that could be in the spool by then, nor be
// given up for those that could not.
type packers struct {
	patient, spooling *packer.Packer
	number            atomic.Uint64
	failed            failedPacks
}

func (a *Archive) openPackers() {
	newPacker := func(put func(context.Context, string, io.ReadSeeker, int64, wire.Digest, int) error) *packer.Packer {
		return packer.NewPacker(packer.Config{
			Site: a.cfg.Site, Gateway: a.cfg.Gateway, Incarnation: a.cfg.Incarnation, Number: &a.packers.number,
			Pool: a.cfg.Pool, Reserve: a.cfg.Packs, Put: put, Failed: a.packers.failed.add,
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
