// SPDX-License-Identifier: Apache-2.0

package crowd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"
)

// Bounds and precision of recorded latencies, in microseconds.
const (
	leastMicros = 1
	maxMicros   = 300_000_000
	digits      = 3
)

// connecting is how many consumers connect at a time.
const connecting = 32

// audience is the crowd from within.
type audience struct {
	ctx    context.Context // of the connections
	cancel context.CancelFunc
	done   sync.WaitGroup
	fast   []*reader

	ended atomic.Int64

	mu        sync.Mutex
	begun     time.Time
	last      time.Time
	latencies *hdrhistogram.Histogram
	bytes     int64
	repeated  int64
	// newest is the number of the newest sample that any consumer received, and common the longest time that a sample took to its first
	// consumer.
	newest uint64
	common time.Duration
}

// reader is one fast consumer's account.
type reader struct {
	// got is the number of its last sample.
	got  atomic.Uint64
	lost atomic.Int64
	wire atomic.Int64
}

func (a *audience) do(o Order) (Outcome, error) {
	switch {
	case len(o.Open) > 0:
		return Outcome{}, a.open(o)
	case o.Begin:
		a.begin()
		return Outcome{}, nil
	case o.Until > 0:
		return a.until(o.Until, o.Patience), nil
	case o.Close:
		a.close()
		return Outcome{}, nil
	}
	return Outcome{}, fmt.Errorf("an order that asks for nothing")
}

func (a *audience) open(o Order) error {
	if a.ctx == nil {
		a.ctx, a.cancel = context.WithCancel(context.Background())
		a.begin()
	}
	ctx := a.ctx
	g, dialing := errgroup.WithContext(ctx)
	g.SetLimit(connecting)
	for _, c := range o.Open {
		r := &reader{}
		r.got.Store(o.After)
		if c.Kind == Fast {
			a.fast = append(a.fast, r)
		}
		g.Go(func() error {
			s, err := dial(dialing, c, o.Protocol, r)
			if err != nil {
				return fmt.Errorf("a %s consumer: %w", c.Kind, err)
			}
			a.done.Go(func() { a.consume(ctx, s, c.Kind, r) })
			return nil
		})
	}
	return g.Wait()
}

func (a *audience) close() {
	a.cancel()
	a.done.Wait()
	a.ctx, a.fast, a.newest = nil, nil, 0
	a.ended.Store(0)
}

func (a *audience) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun, a.last = time.Now(), time.Time{}
	a.latencies = hdrhistogram.New(leastMicros, maxMicros, digits)
	a.bytes, a.repeated, a.common = 0, 0, 0
	for _, r := range a.fast {
		r.lost.Store(0)
		r.wire.Store(0)
	}
}

// consume reads until the connection ends.
func (a *audience) consume(ctx context.Context, s source, kind Kind, r *reader) {
	defer s.close()
	if kind == Stalled {
		<-ctx.Done()
		return
	}
	for {
		samples, err := s.next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				a.ended.Add(1)
			}
			return
		}
		if kind == Fast {
			a.got(r, samples)
		}
	}
}

// got notes samples that came at one time.
func (a *audience) got(r *reader, samples [][]byte) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range samples {
		number, at, err := parseSample(s)
		if err != nil {
			continue
		}
		before := r.got.Load()
		if number <= before {
			a.repeated++
			continue
		}
		r.lost.Add(int64(number - before - 1))
		r.got.Store(number)
		if number > a.newest { // the first consumer to receive it
			a.newest, a.common = number, max(a.common, now.Sub(at))
		}
		a.bytes += int64(len(s))
		_ = a.latencies.RecordValue(max(leastMicros, min(maxMicros, now.Sub(at).Microseconds())))
	}
	if len(samples) > 0 {
		a.last = now
	}
}

// until waits for a sample, and says what came.
func (a *audience) until(number uint64, patience time.Duration) Outcome {
	end := time.Now().Add(patience)
	for time.Now().Before(end) && a.behind(number) > 0 {
		time.Sleep(time.Millisecond)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	millis := func(micros int64) float64 { return float64(micros) / 1000 }
	out := Outcome{
		Samples: a.latencies.TotalCount(), Bytes: a.bytes, Lost: a.behind(number), Repeated: a.repeated,
		P50: millis(a.latencies.ValueAtQuantile(50)), P99: millis(a.latencies.ValueAtQuantile(99)), Max: millis(a.latencies.Max()),
		Common: millis(a.common.Microseconds()), Seconds: a.last.Sub(a.begun).Seconds(), Ended: a.ended.Load(),
	}
	for _, r := range a.fast {
		out.Lost += r.lost.Load()
		out.Wire += r.wire.Load()
	}
	return out
}

// behind is how many samples the fast consumers have yet to get.
func (a *audience) behind(number uint64) (missing int64) {
	for _, r := range a.fast {
		missing += max(0, int64(number)-int64(r.got.Load()))
	}
	return missing
}
