// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Entries calls f for each entry that a bucket holds under keys that match, in the
// order in which they were last written. Errors: f's, ctx's, and what keeps JetStream
// from answering.
func Entries(ctx context.Context, kv jetstream.KeyValue, match string, f func(jetstream.KeyValueEntry) error, opts ...jetstream.WatchOpt) error {
	w, err := kv.Watch(ctx, match, append(opts, jetstream.IgnoreDeletes())...)
	if err != nil {
		return fmt.Errorf("read bucket %s: %w", kv.Bucket(), err)
	}
	defer func() { _ = w.Stop() }() // it ends with the connection at the latest
	for {
		select {
		case e, more := <-w.Updates():
			switch {
			case !more:
				return fmt.Errorf("read bucket %s: the connection ended", kv.Bucket())
			case e == nil: // all that there was has come
				return nil
			}
			if err := f(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
