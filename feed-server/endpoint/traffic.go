// SPDX-License-Identifier: Apache-2.0

package endpoint

import "sync/atomic"

// Traffic is what the archive's answers amount to, of all clients together.
type Traffic struct {
	sent    atomic.Uint64
	streams atomic.Int64
}

// Add counts bytes of content that were sent by another protocol than HTTP.
func (t *Traffic) Add(bytes int) { t.sent.Add(uint64(bytes)) }

// Sent is how many bytes of content were sent since the server began.
func (t *Traffic) Sent() uint64 { return t.sent.Load() }

// EventStreams is how many are open.
func (t *Traffic) EventStreams() int { return int(t.streams.Load()) }
