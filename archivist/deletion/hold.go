// SPDX-License-Identifier: Apache-2.0

package deletion

import "github.com/substorm/substorm/internal/wire"

// Hold returns what decides on legal hold, for deletions and for all that retracts: it
// says why nothing of an instrument may be retracted or deleted, in words for people, and
// is empty where it may. Settings returns an instrument's entry of the registry, and false where
// there is none that can be read; live says whether that is the registry as it is now.
func Hold(settings func(instrument string) (wire.InstrumentEntry, bool), live func() bool) func(instrument string) string {
	return func(instrument string) string {
		e, known := settings(instrument)
		switch {
		case !live():
			return "the Site's registry was not read yet since this archivist reached NATS, so it is unknown whether instrument " + instrument +
				" is under legal hold: ask again in a minute"
		case !known:
			return "the registry has no entry of instrument " + instrument +
				" that can be read, so it is unknown whether it is under legal hold: apply its Instrument, see that archivist and operator have the same version, and ask again"
		case e.LegalHold:
			return "instrument " + instrument + " is under legal hold: set spec.archive.legalHold of the Instrument, or spec.legalHold of its Site, to None, and ask again"
		default:
			return ""
		}
	}
}
