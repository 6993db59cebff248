// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// atRate sends what is due, and notes how long each answer took since then: an
// object that waits for a free sender waits in the figures.
func atRate(o Order, put func(*body) error) Outcome {
	var out Outcome
	var mu sync.Mutex
	histogram := hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)
	due := make(chan time.Time, 1<<16) // more than ever waits: senders must not hold up the clock
	var senders sync.WaitGroup
	for range o.Senders {
		b := newBody(o.Size)
		senders.Go(func() {
			for at := range due {
				b.next()
				err := put(b)
				took := time.Since(at)
				mu.Lock()
				if err != nil {
					out.Error = err.Error()
				} else {
					out.Objects++
					_ = histogram.RecordValue(max(took.Microseconds(), 1)) // within its range
					if o.Digests {
						out.Digests = append(out.Digests, b.digest)
					}
				}
				mu.Unlock()
			}
		})
	}
	begin := time.Now()
	arrivals(o, begin, func(at time.Time) { due <- at })
	close(due)
	senders.Wait()
	out.BytesPerSecond = float64(out.Objects) * float64(o.Size) / time.Since(begin).Seconds()
	out.P50, out.P99 = float64(histogram.ValueAtQuantile(50))/1000, float64(histogram.ValueAtQuantile(99))/1000
	return out
}

// arrivals calls due when an object is, at random instants (Poisson).
func arrivals(o Order, begin time.Time, due func(time.Time)) {
	random := rand.New(rand.NewPCG(uint64(o.Size)+o.Seed<<32, uint64(o.Rate*1000)))
	for at := begin; at.Sub(begin) < o.Duration; at = at.Add(time.Duration(random.ExpFloat64() / o.Rate * float64(time.Second))) {
		time.Sleep(time.Until(at))
		due(at)
	}
}
