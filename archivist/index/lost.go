// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// noteLost has the sweep look for what lost files of a manifest listed. It comes before the index says what the bucket has now, which is all that the
// next lease would know.
func (k *Keeper) noteLost(ctx context.Context, instrument string, day wire.Day) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	value, err := wire.Encode(wire.LostManifests{Found: time.Now().UTC()})
	if err != nil {
		return err
	}
	cursors, err := k.cfg.JetStream.KeyValue(ctx, wire.CursorBucket(k.cfg.Site))
	if err == nil {
		_, err = cursors.Put(ctx, wire.LostManifestsKey, value)
	}
	if err != nil {
		return fmt.Errorf("note lost files of manifests in %s: %w", wire.CursorBucket(k.cfg.Site), err)
	}
	k.lost = append(k.lost, LostDay{instrument, day})
	return nil
}
