// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// reportTimeout bounds how long a report may take.
const reportTimeout = 5 * time.Second

// report says why nothing expires, for the Site's status, where that changed. It holds
// nothing up: metrics and log have it too.
func (r *Collector) report(ctx context.Context, now time.Time) {
	status := wire.ExpiryStatus{Count: len(r.stopped)}
	if r.clock != nil {
		status.Clocks = r.clock.Error()
	}
	for _, instrument := range slices.Sorted(maps.Keys(r.stopped)) {
		if len(status.Stopped) < wire.MaxStopped {
			status.Stopped = append(status.Stopped, r.stopped[instrument])
		}
	}
	is := status
	if is.Clocks != "" {
		is.Clocks = "they do not agree" // the times change with each look
	}
	content, err := wire.Encode(is)
	if err != nil || bytes.Equal(content, r.reported) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	status.ReportedAt = now
	if err := r.putReport(ctx, status); err != nil {
		r.cfg.Log.Warn("cannot report now why nothing expires", "error", err)
		return
	}
	r.reported = content
}

func (r *Collector) putReport(ctx context.Context, status wire.ExpiryStatus) error {
	bucket := wire.StatusBucket(r.cfg.Site)
	kv, err := r.cfg.JetStream.KeyValue(ctx, bucket)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucket, err)
	}
	value, err := wire.Encode(status)
	if err != nil {
		return err
	}
	if _, err := kv.Put(ctx, wire.ExpiryStatusKey, value); err != nil {
		return fmt.Errorf("write %s of %s: %w", wire.ExpiryStatusKey, bucket, err)
	}
	return nil
}
