// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"github.com/substorm/substorm/ingest-gateway/archive/closing"
	"github.com/substorm/substorm/ingest-gateway/archive/compact"
	"github.com/substorm/substorm/ingest-gateway/archive/keeping"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

func (a *archivist) room(lease *stream.Lease, compactor *compact.Compactor, closer *closing.Closer) *keeping.Room {
	return keeping.New(keeping.Config{
		Site: a.cfg.Site, Gateway: a.cfg.Gateway, Incarnation: a.cfg.Incarnation,
		JetStream: a.cfg.JetStream, Store: a.cfg.Store, Lease: lease, Compactor: compactor,
		Held: a.held, Declared: a.cfg.Declared, Closed: func(day wire.Day) bool { return day <= closer.ClosedTo() },
		Interval: a.cfg.RemoveInterval, ExpireInterval: a.cfg.ExpireInterval, Grace: a.cfg.RemoveGrace,
		Log: a.cfg.Log, Metrics: a.metrics.keeping,
	})
}

// held says why nothing of an instrument may be taken back: it is under legal hold, or
// nobody can say that it is not.
func (a *archivist) held(instrument string) string {
	e, known := a.cfg.Settings(instrument)
	switch {
	case !known:
		return "the registry does not know instrument " + instrument + ", and so not whether it is under legal hold: apply its Instrument, and ask again"
	case e.LegalHold:
		return "instrument " + instrument + " is under legal hold: set spec.archive.legalHold of the Instrument, or spec.legalHold of its Site, to false, and ask again"
	default:
		return ""
	}
}
