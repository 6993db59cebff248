// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// pacer holds what is written down to a number of bytes a second.
type pacer struct {
	limit *rate.Limiter
	now   func() time.Time
	// sleep returns early only where the run ends.
	sleep func(time.Duration)
}

// Pieces that are written at a time last a tenth of a second, as far as they are
// neither so small that headers outweigh them nor larger than a write.
const (
	piecesPerSecond = 10
	minPiece        = 536 // what every IPv4 host takes in one segment (RFC 9293, section 3.7.1)
)

func newPacer(ctx context.Context, bytesPerSecond int64) *pacer {
	piece := min(max(bytesPerSecond/piecesPerSecond, minPiece), maxWrite)
	return &pacer{
		limit: rate.NewLimiter(rate.Limit(bytesPerSecond), int(piece)),
		now:   time.Now,
		sleep: func(d time.Duration) {
			wait := time.NewTimer(d)
			defer wait.Stop()
			select {
			case <-ctx.Done():
			case <-wait.C:
			}
		},
	}
}

// take returns how many of n bytes may be written, once they may.
func (p *pacer) take(n int) int {
	n = min(n, p.limit.Burst())
	now := p.now()
	if wait := p.limit.ReserveN(now, n).DelayFrom(now); wait > 0 {
		p.sleep(wait)
	}
	return n
}

// writeBuffer is the size of a paced socket's write buffer: its content is sent before anything
// newer.
func writeBuffer(bytesPerSecond int64) int {
	return int(min(max(2*bytesPerSecond, 16<<10), 4<<20))
}
