// SPDX-License-Identifier: Apache-2.0

// Package failedpacks reads which packs gateways could not store, see wire.FailedPacks.
package failedpacks

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Read returns the keys of the packs that a Site's gateways report. A report that cannot be
// read counts as none. Errors: JetStream's.
func Read(ctx context.Context, js jetstream.JetStream, site string) (map[string]bool, error) {
	failed := map[string]bool{}
	return failed, stream.EntriesOf(ctx, js, wire.StatusBucket(site), wire.FailedPacksKeys, func(e jetstream.KeyValueEntry) error {
		if f, err := wire.DecodeFailedPacks(e.Key(), e.Value()); err == nil {
			for _, key := range f.Packs {
				failed[key] = true
			}
		}
		return nil
	})
}
