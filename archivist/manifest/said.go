// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// said are reports of instruments that the writer keeps in the status bucket, for the instruments that have something to report.
type said[T any] struct {
	of     map[string]T
	unsaid map[string]bool
}

// load reads what was reported before, under keys that parse knows. A report that cannot be read is reported again.
func (s *said[T]) load(ctx context.Context, js jetstream.JetStream, site, keys string, parse func(string) (string, bool)) error {
	s.of, s.unsaid = map[string]T{}, map[string]bool{}
	return stream.EntriesOf(ctx, js, wire.StatusBucket(site), keys, func(e jetstream.KeyValueEntry) error {
		instrument, ok := parse(e.Key())
		if is, err := wire.Decode[T](e.Value()); ok && err == nil {
			s.of[instrument] = is
		}
		return nil
	})
}

// set notes what is to be reported of an instrument.
func (s *said[T]) set(instrument string, is T) {
	if s.of == nil {
		s.of, s.unsaid = map[string]T{}, map[string]bool{}
	}
	s.of[instrument], s.unsaid[instrument] = is, true
}

// report writes what was not reported yet.
func (s *said[T]) report(ctx context.Context, js jetstream.JetStream, site string, key func(string) string) error {
	if len(s.unsaid) == 0 {
		return nil
	}
	bucket := wire.StatusBucket(site)
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucket, err)
	}
	for instrument := range s.unsaid {
		value, err := wire.Encode(s.of[instrument])
		if err != nil {
			return err
		}
		if _, err := kv.Put(ctx, key(instrument), value); err != nil {
			return fmt.Errorf("write %s of %s: %w", key(instrument), bucket, err)
		}
		delete(s.unsaid, instrument)
	}
	return nil
}

// loadSaid reads what earlier writers reported of instruments.
func (w *Writer) loadSaid(ctx context.Context) error {
	js, site := w.cfg.JetStream, w.cfg.Site
	if err := w.clocks.load(ctx, js, site, wire.ClockStatusKey("*"), wire.ParseClockStatusKey); err != nil {
		return err
	}
	return w.contents.load(ctx, js, site, wire.ContentStatusKey("*"), wire.ParseContentStatusKey)
}

// reportInstruments reports which instruments stated times that are not believed, and which sent data that is not of the declared media type. It
// holds nothing up.
func (w *Writer) reportInstruments(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := w.clocks.report(ctx, w.cfg.JetStream, w.cfg.Site, wire.ClockStatusKey); err != nil {
		w.cfg.Log.Warn("cannot report wrong clocks of instruments now", "error", err)
	}
	if err := w.contents.report(ctx, w.cfg.JetStream, w.cfg.Site, wire.ContentStatusKey); err != nil {
		w.cfg.Log.Warn("cannot report objects that are not of their media type now", "error", err)
	}
}
