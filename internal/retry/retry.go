// SPDX-License-Identifier: Apache-2.0

// Package retry waits between two tries.
package retry

import (
	"context"
	"time"
)

// Sleep waits for d and returns true, or false where ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
