// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// Limit is how much this gateway takes of one instrument, by all its listeners and
// connections together. A nil Limit takes everything. Any number of goroutines
// may ask it.
type Limit struct {
	bytes, objects *rate.Limiter // nil: no limit
}

// minBurst is the least number of bytes that may come at once: what is read at a
// time, or a datagram, must fit in.
const minBurst = 64 << 10

// newLimit returns nil if nothing is limited.
func newLimit(bytesPerSecond, objectsPerSecond int64) *Limit {
	if bytesPerSecond <= 0 && objectsPerSecond <= 0 {
		return nil
	}
	l := &Limit{}
	if bytesPerSecond > 0 {
		l.bytes = rate.NewLimiter(rate.Limit(bytesPerSecond), int(min(max(bytesPerSecond, minBurst), math.MaxInt32)))
	}
	if objectsPerSecond > 0 {
		l.objects = rate.NewLimiter(rate.Limit(objectsPerSecond), int(min(objectsPerSecond, math.MaxInt32)))
	}
	return l
}

// Chunk is how many bytes to read at a time at most.
func (l *Limit) Chunk() int {
	if l == nil || l.bytes == nil {
		return math.MaxInt
	}
	return l.bytes.Burst()
}

// Read counts bytes that were read, and returns for how long nothing more should be.
func (l *Limit) Read(n int) time.Duration {
	if l == nil || l.bytes == nil {
		return 0
	}
	now := time.Now()
	var wait time.Duration
	for burst := l.bytes.Burst(); n > 0; n -= burst {
		wait = l.bytes.ReserveN(now, min(n, burst)).DelayFrom(now)
	}
	return wait
}

// TakeDatagram says whether a datagram of n bytes may still come.
func (l *Limit) TakeDatagram(n int, now time.Time) bool {
	return l == nil || l.bytes == nil || l.bytes.AllowN(now, n)
}

// TakeObject says whether one more object may come now; otherwise after how long.
func (l *Limit) TakeObject() (wait time.Duration, ok bool) {
	if l == nil || l.objects == nil {
		return 0, true
	}
	now := time.Now()
	r := l.objects.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return wait, false
	}
	return 0, true
}
