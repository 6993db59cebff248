// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// purges looks at what is asked of the partner and not confirmed once all days were looked at: it was asked after that, or what was
// confirmed was lost.
func (r *run) purges(ctx context.Context) error {
	var day []Asked
	err := r.Book.Asked(ctx, func(a Asked) error {
		if len(day) > 0 && (day[0].Instrument != a.Instrument || day[0].Day != a.Day) {
			if err := r.purgeDay(ctx, day); err != nil {
				return err
			}
			day = day[:0]
		}
		day = append(day, a)
		return nil
	})
	if err != nil || len(day) == 0 {
		return err
	}
	return r.purgeDay(ctx, day)
}

// purgeDay removes and confirms what is asked of a day, and counts what it cannot confirm.
func (r *run) purgeDay(ctx context.Context, asked []Asked) error {
	day := asked[0].Day
	in, declared := r.Registry().Instruments[asked[0].Instrument]
	if !declared {
		in = wire.InstrumentEntry{Instrument: asked[0].Instrument}
	}
	month, err := r.Book.Month(ctx, in.Instrument, mirrorindex.MonthOf(day))
	if err != nil {
		return err
	}
	d, err := r.read(ctx, in, day, r.seen(in, month.Days[day]))
	if err != nil {
		return err
	}
	of := make(map[string]int, len(d.objects))
	for i := range d.objects {
		of[d.objects[i].Record.ID] = i
	}
	d.plan, d.asked = plan.Push{}, true
	waits := 0
	for _, a := range asked {
		i, listed := of[a.ID]
		switch {
		case !a.Has && len(d.left) == 0 && (!listed || !d.objects[i].Selected): // the partner cannot have it
		case !listed || d.objects[i].Record.State != wire.StatePurged || !r.inside(d.objects[i].Record) || r.VerifyOnly:
			waits++
		default:
			d.plan.Remove = append(d.plan.Remove, i)
		}
	}
	if len(d.plan.Remove) > 0 {
		if err := r.remove(ctx, d); err != nil {
			return err
		}
		if d.stays {
			waits += len(d.plan.Remove)
		}
	}
	r.Progress.unconfirm(waits)
	return nil
}

// selection says of the objects of an instrument whether the partner is to have them.
func (r *run) selection(in wire.InstrumentEntry) func(*wire.Record) bool {
	if selects := access.Mirrored(&r.Entry, &in, r.now); selects != nil {
		return selects
	}
	return func(*wire.Record) bool { return false }
}
