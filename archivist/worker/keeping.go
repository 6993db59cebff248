// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"

	"github.com/substorm/substorm/archivist/compact"
	"github.com/substorm/substorm/archivist/dayclose"
	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/archivist/manifest"
	"github.com/substorm/substorm/archivist/retention"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

func (a *archivist) collector(lease *stream.Lease, deleter *deletion.Deleter, writer *manifest.Writer, compactor *compact.Compactor, closer *dayclose.Closer) *retention.Collector {
	return retention.New(retention.Config{
		Base: a.base(lease), Compactor: compactor, Deleter: deleter, Declared: a.declared(), Partners: a.partners(), ClosedTo: closer.ClosedTo, Expired: writer.Expired,
		Interval: a.cfg.RemoveInterval, ExpireInterval: a.cfg.ExpireInterval, Grace: a.cfg.RemoveGrace,
		Budget: a.cfg.Budget, Metrics: a.metrics.keeping,
	})
}

// live says whether the registry is known as it is now.
func (a *archivist) live() bool { return a.cfg.Live == nil || a.cfg.Live() }

// awaitRegistry waits until it is, for a while: data is listed without a registry.
func (a *archivist) awaitRegistry(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, registryWait)
	defer cancel()
	for !a.live() {
		if !retry.Sleep(ctx, registryLook) {
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

// partners returns what is declared of the partners of mirrors: the registry as it is now.
func (a *archivist) partners() func() (map[string]retention.Partner, bool) {
	if a.cfg.Partners == nil {
		return nil
	}
	return func() (map[string]retention.Partner, bool) {
		if !a.live() {
			return nil, false
		}
		return a.cfg.Partners()
	}
}

// currentEntry returns an instrument's entry of the registry, unless that is an older one.
func (a *archivist) currentEntry(instrument string) (wire.InstrumentEntry, bool) {
	if a.cfg.Unread != nil && a.cfg.Unread(instrument) {
		return wire.InstrumentEntry{}, false
	}
	return a.cfg.Settings(instrument)
}

// known says whether the registry knows an instrument, as it is now.
func (a *archivist) known(instrument string) bool {
	_, known := a.currentEntry(instrument)
	return known && a.live()
}

// expires says whether an instrument's data is not kept for ever.
func (a *archivist) expires(instrument string) bool {
	e, known := a.cfg.Settings(instrument)
	return known && e.Retention != nil
}

// held says why nothing of an instrument may be retracted or deleted.
func (a *archivist) held(instrument string) string {
	return deletion.Hold(a.currentEntry, a.live)(instrument)
}

func (a *archivist) deleter(lease *stream.Lease, closer *dayclose.Closer) *deletion.Deleter {
	return deletion.New(deletion.Config{
		Base: a.base(lease), Held: a.held, Spooled: closer.Spooled, Metrics: a.metrics.deletion,
	})
}
