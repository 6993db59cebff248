// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"context"
	"time"

	"github.com/substorm/substorm/ingest-gateway/archive/closing"
	"github.com/substorm/substorm/ingest-gateway/archive/compact"
	"github.com/substorm/substorm/ingest-gateway/archive/keeping"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

func (a *archivist) keeping(lease *stream.Lease, compactor *compact.Compactor, closer *closing.Closer) *keeping.Room {
	return keeping.New(keeping.Config{
		Site: a.cfg.Site, Gateway: a.cfg.Gateway, Incarnation: a.cfg.Incarnation,
		JetStream: a.cfg.JetStream, Store: a.cfg.Store, Lease: lease, Compactor: compactor,
		Held: a.held, Declared: a.declared(), ClosedTo: closer.ClosedTo,
		Interval: a.cfg.RemoveInterval, ExpireInterval: a.cfg.ExpireInterval, Grace: a.cfg.RemoveGrace,
		Log: a.cfg.Log, Metrics: a.metrics.keeping,
	})
}

// live says whether the registry is known as it is now.
func (a *archivist) live() bool { return a.cfg.Live == nil || a.cfg.Live() }

// awaitRegistry waits until it is, for a while: data is listed without a registry.
func (a *archivist) awaitRegistry(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, registryWait)
	defer cancel()
	for !a.live() {
		select {
		case <-time.After(registryLook):
		case <-ctx.Done():
			return
		}
	}
}

// declared returns what retentions follow from: the registry as it is now.
func (a *archivist) declared() func() ([]wire.InstrumentEntry, bool) {
	if a.cfg.Declared == nil {
		return nil
	}
	return func() ([]wire.InstrumentEntry, bool) {
		if !a.live() {
			return nil, false
		}
		return a.cfg.Declared()
	}
}

// held says why nothing of an instrument may be taken back: it is under legal hold, or
// nobody can say that it is not.
func (a *archivist) held(instrument string) string {
	e, known := a.cfg.Settings(instrument)
	switch {
	case !a.live():
		return "the Site's registry was not read yet since this gateway reached NATS, and so nobody knows whether instrument " + instrument +
			" is under legal hold: ask again in a minute"
	case !known:
		return "the registry does not know instrument " + instrument + ", and so not whether it is under legal hold: apply its Instrument, and ask again"
	case e.LegalHold:
		return "instrument " + instrument + " is under legal hold: set spec.archive.legalHold of the Instrument, or spec.legalHold of its Site, to false, and ask again"
	default:
		return ""
	}
}
