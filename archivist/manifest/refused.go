// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// reportTimeout bounds how long a report of refusals may take.
const reportTimeout = 5 * time.Second

// refusals are what was not retracted, by instrument, since the writer began. The incarnation names
// that: a process may be the lease holder more than once, and counts from zero each time.
type refusals struct {
	incarnation string
	counts      map[string]map[string]wire.RefusedChange // by reason
	untold      map[string]bool
}

func (r *refusals) note(q wire.ArchiveRequest, no *refusal) {
	if r.counts == nil {
		r.incarnation = strconv.FormatInt(time.Now().UnixMilli(), 36)
		r.counts, r.untold = map[string]map[string]wire.RefusedChange{}, map[string]bool{}
	}
	if r.counts[q.Instrument] == nil {
		r.counts[q.Instrument] = map[string]wire.RefusedChange{}
	}
	count := r.counts[q.Instrument][no.reason].Count + 1
	r.counts[q.Instrument][no.reason] = wire.RefusedChange{Count: count, ID: q.ID, Asked: changeOf(q.Action), By: q.By, Why: no.next, At: time.Now().UTC()}
	r.untold[q.Instrument] = true
}

// tellRefusals reports what was refused since the last time, for the users that declared the
// instruments. It holds nothing up: the log has it all.
func (w *Writer) tellRefusals(ctx context.Context) {
	if len(w.refusals.untold) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := w.reportRefusals(ctx); err != nil {
		w.cfg.Log.Warn("cannot report refused changes of objects now", "error", err)
	}
}

func (w *Writer) reportRefusals(ctx context.Context) error {
	bucket := wire.StatusBucket(w.cfg.Site)
	kv, err := w.cfg.JetStream.KeyValue(ctx, bucket)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucket, err)
	}
	for instrument := range w.refusals.untold {
		value, err := wire.Encode(wire.RefusalStatus{Incarnation: w.cfg.Incarnation + "/" + w.refusals.incarnation, ReportedAt: time.Now().UTC(), Changes: w.refusals.counts[instrument]})
		if err != nil {
			return err
		}
		key := wire.RefusalStatusKey(instrument, wire.ArchivistWriter)
		if _, err := kv.Put(ctx, key, value); err != nil {
			return fmt.Errorf("write %s of %s: %w", key, bucket, err)
		}
		delete(w.refusals.untold, instrument)
	}
	return nil
}
