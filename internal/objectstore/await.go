// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"context"
	"time"

	"github.com/substorm/substorm/internal/retry"
)

const (
	awaitPause   = time.Second
	awaitTimeout = 5 * time.Second
)

// Await waits until the bucket answers, or ctx ends, and calls away with each new reason
// why it does not. It returns whether the bucket answered.
func Await(ctx context.Context, store Store, away func(error)) bool {
	for said := ""; ; {
		try, cancel := context.WithTimeout(ctx, awaitTimeout)
		err := store.CheckBucket(try)
		cancel()
		if err == nil {
			return true
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			said = text
			away(err)
		}
		if !retry.Sleep(ctx, awaitPause) {
			return false
		}
	}
}
