// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/retry"
)

// patience is how long is waited for what must come. The archive takes longest to list what it holds: a segment closes after 15 s
// (docs/samples), and a part of the manifest a minute after that.
const patience = 3 * time.Minute

// await tries again and again until check returns nil. The error is the last one, once patience is over, or ctx's.
func await(ctx context.Context, check func() error) error {
	for deadline := time.Now().Add(patience); ; {
		err := check()
		switch {
		case err == nil:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("after %s: %w", patience, err)
		case !retry.Sleep(ctx, time.Second):
			return ctx.Err()
		}
	}
}
