// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"time"

	"github.com/substorm/substorm/archivist/damage"
	"github.com/substorm/substorm/internal/wire"
)

// maxLost bounds the lost originals that are reported for each time that parts are
// closed. The scrub finds the others.
const maxLost = 256

// noteLost notes that the original of a duplicate is not in the store.
func (w *Writer) noteLost(id string, receivedAt time.Time, duplicate wire.Notice) {
	if len(w.lost) >= maxLost {
		return
	}
	key, _ := wire.KeyOfID(id)
	original := wire.Record{ID: id, Key: key, Size: duplicate.Size, Digest: duplicate.Digest, ReceivedAt: receivedAt}
	w.lost = append(w.lost, wire.DamageOf(duplicate.Instrument, original, wire.DamageMissing, w.cfg.Pod, time.Now()))
}

// reportLost reports originals that are not in the store, for the scrub to confirm. It
// comes after the parts that list them, and holds nothing up: the log has it all.
func (w *Writer) reportLost(ctx context.Context) {
	if len(w.lost) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := damage.Report(ctx, w.cfg.JetStream, w.cfg.Site, w.lost...); err != nil {
		w.cfg.Log.Warn("cannot report missing objects now: the scrub will find them", "objects", len(w.lost), "error", err)
	}
	w.lost = w.lost[:0]
}
