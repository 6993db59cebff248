// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// clocks are what is known of the times that instruments tell, of those that once told one that was not believed.
type clocks struct {
	of     map[string]wire.ClockStatus
	unsaid map[string]bool
}

// load reads what was reported before. A report that cannot be read is reported again.
func (c *clocks) load(ctx context.Context, js jetstream.JetStream, site string) error {
	c.of, c.unsaid = map[string]wire.ClockStatus{}, map[string]bool{}
	return stream.EntriesOf(ctx, js, wire.StatusBucket(site), wire.ClockStatusKey("*"), func(e jetstream.KeyValueEntry) error {
		instrument, ok := wire.ParseClockStatusKey(e.Key())
		if is, err := wire.Decode[wire.ClockStatus](e.Value()); ok && err == nil {
			c.of[instrument] = is
		}
		return nil
	})
}

// note takes an object that was listed, which may be one that was listed before.
func (c *clocks) note(n *wire.Notice) {
	from, _, doubted := n.Told()
	is, known := c.of[n.Instrument]
	switch {
	case doubted != nil:
		if known && n.ReceivedAt.Before(is.DoubtedAt) {
			return
		}
		is = wire.ClockStatus{DoubtedAt: n.ReceivedAt, Offset: wire.Span(n.ReceivedAt.Sub(doubted.To)), Doubted: is.Doubted + 1}
	case from != nil && known && is.BelievedAt == nil && n.ReceivedAt.After(is.DoubtedAt):
		at := n.ReceivedAt
		is.BelievedAt = &at
	default:
		return
	}
	if c.of == nil {
		c.of, c.unsaid = map[string]wire.ClockStatus{}, map[string]bool{}
	}
	c.of[n.Instrument], c.unsaid[n.Instrument] = is, true
}

// tellClocks reports which instruments told times that are not believed. It holds nothing up.
func (w *Writer) tellClocks(ctx context.Context) {
	if len(w.clocks.unsaid) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := w.reportClocks(ctx); err != nil {
		w.cfg.Log.Warn("that the clocks of instruments are wrong cannot be reported now", "error", err)
	}
}

func (w *Writer) reportClocks(ctx context.Context) error {
	bucket := wire.StatusBucket(w.cfg.Site)
	kv, err := w.cfg.JetStream.KeyValue(ctx, bucket)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucket, err)
	}
	for instrument := range w.clocks.unsaid {
		value, err := wire.Encode(w.clocks.of[instrument])
		if err != nil {
			return err
		}
		key := wire.ClockStatusKey(instrument)
		if _, err := kv.Put(ctx, key, value); err != nil {
			return fmt.Errorf("write %s of %s: %w", key, bucket, err)
		}
		delete(w.clocks.unsaid, instrument)
	}
	return nil
}
