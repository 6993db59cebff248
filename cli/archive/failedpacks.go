// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/wire"
)

// readFailed reads which packs gateways report as failed: the bucket may have them nevertheless, and no sender has a receipt for what only
// they hold. Without JetStream that is not known, and their members count as unlisted.
func (s *survey) readFailed(ctx context.Context, b *backend.Backend) error {
	if !b.KnowsJetStream() {
		return nil
	}
	js, err := b.JetStream(ctx)
	if err != nil {
		return err
	}
	if _, err := js.KeyValue(ctx, wire.StatusBucket(s.site)); errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	s.failed = map[string]bool{}
	err = backend.Entries(ctx, js, wire.StatusBucket(s.site), wire.FailedPacksKeys, func(e backend.Entry) error {
		if report, err := wire.DecodeFailedPacks(e.Key, e.Data); err == nil { // as the archivist reads it: a report that cannot be read names none
			for _, key := range report.Packs {
				s.failed[key] = true
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read which packs gateways report as failed: %w", err)
	}
	if len(s.failed) > 0 {
		fmt.Fprintf(s.notes, "gateways report %d packs as failed: they are not compared, because no sender has a receipt for what only they hold, "+
			"and the archivist removes those that are in the bucket\n", len(s.failed))
	}
	return nil
}
