// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Mirrored returns a function that says of an object of an instrument whether a partner that is pushed to is to have it: the
// MirrorPartner selects the object, and the partner may have it. Changes of the object since it was received are not looked at. Nil:
// the partner is to have nothing of the instrument.
func Mirrored(m *wire.MirrorEntry, in *wire.InstrumentEntry, now time.Time) func(*wire.Record) bool {
	if m.Direction != wire.MirrorPush || !slices.Contains(m.Selection.Instruments, in.Instrument) {
		return nil
	}
	reader := Mirror(m.Partner, map[string]bool{in.Instrument: true}, m.Selection.Embargoed)
	if Decide(Archive, reader, in.Instrument, in.Access, time.Time{}, now) != Granted {
		return nil
	}
	from, to := m.Selection.Observed(now)
	return func(r *wire.Record) bool {
		first, last := r.Observed()
		return (to.IsZero() || first.Before(to)) && !last.Before(from) &&
			Decide(Archive, reader, in.Instrument, in.Access, last, now) == Granted
	}
}

// Pulled returns what says of an object of an instrument whether a reader that pulls is to have it: it pulls the instrument, and may
// read the object. Nil: it is to have nothing of the instrument.
func Pulled(e *wire.ReaderEntry, in *wire.InstrumentEntry, now time.Time) func(*wire.Record) bool {
	reader := SiteReader(e.Reader)
	if !e.PullsOf(in.Instrument) || Decide(Archive, reader, in.Instrument, in.Access, time.Time{}, now) != Granted {
		return nil
	}
	return func(r *wire.Record) bool {
		return Decide(Archive, reader, in.Instrument, in.Access, r.ObservedEnd(), now) == Granted
	}
}
