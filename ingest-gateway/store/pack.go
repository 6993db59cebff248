// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/substorm/substorm/ingest-gateway/packer"
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
		ctx, cancel := context.WithTimeout(ctx, a.shortTimeout(size))
		defer cancel()
		return a.putPack(ctx, key, body, size, digest, members)
	})
}

// pack stores the object in a pack, or puts it where the decision says otherwise. Error
// packer.ErrNoSpace: it is to be stored by itself.
func (o *Object) pack(ctx context.Context, n wire.Notice, d decision) (wire.Notice, outcome, error) {
	to := o.archive.packers.patient
	if d.otherwise != nowhere {
		to = o.archive.packers.spooling
	}
	m, err := to.Add(n, o.buffer.Reader())
	if err != nil {
		return n, stored, err
	}
	defer m.Release()
	o.buffer.Release()
	err = m.Wait(ctx)
	if d.otherwise == nowhere || !isAway(err) {
		return m.Notice, stored, err
	}
	n.ID = wire.SpooledID(n)
	return n, spooled, o.spoolBytes(ctx, n, m.Reader(), d.otherwise)
}
