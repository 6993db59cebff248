// SPDX-License-Identifier: Apache-2.0

package udp

import "sync/atomic"

// budget bounds the memory of messages, in bytes.
type budget struct {
	size int64
	used atomic.Int64
}

// take returns false if there is no space for n bytes.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= b.size {
		return true
	}
	b.used.Add(-n)
	return false
}

func (b *budget) give(n int64) { b.used.Add(-n) }
