// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/bench/internal/fanout"
)

const (
	// memoryFor is how long a page's memory is watched, and memoryEach how often.
	memoryFor  = 15 * time.Minute
	memoryEach = 30 * time.Second
	// A page's memory in the last third to that in the first: flat.
	flat = 1.1
	// delayMessages of each rate are sent; of those from the 50th on the delay counts.
	delayMessages = 100
)

// memoryAndDelay opens a page for each way and each of the two experiments at once.
func (b *bench) memoryAndDelay() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	memory, delay := map[string]*tab{}, map[string]*tab{}
	for _, way := range ways {
		for group, tabs := range map[string]map[string]*tab{steady: memory, paced: delay} {
			t, err := b.open(group, way, "")
			if err != nil {
				return err
			}
			defer t.Close()
			tabs[way] = t
		}
	}
	supplies, supplying := errgroup.WithContext(ctx)
	steadily, stop := context.WithCancel(supplying)
	supplies.Go(func() error { return repeat(steadily, b.site.NewSupply(steady), time.Second, math.MaxInt) })
	slow := 1
	if os.Getenv(shortVariable) != "" {
		slow = rates // only the fastest
	}
	for n := slow; n <= rates; n++ {
		supplies.Go(func() error {
			return repeat(supplying, b.site.NewSupply(pacedChannel(n)), 10*time.Second/time.Duration(n), delayMessages)
		})
	}
	err := b.watchMemory(memory)
	stop()
	if waited := supplies.Wait(); err == nil {
		err = waited
	}
	if err != nil {
		return err
	}
	return b.delays(delay, slow)
}

// repeat publishes samples at an interval, which begin at any instant of it.
func repeat(ctx context.Context, s *fanout.Supply, interval time.Duration, times int) error {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for range times {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		if err := s.Publish(ctx, 1, processorProbe); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (b *bench) watchMemory(tabs map[string]*tab) error {
	during, each := memoryFor, memoryEach
	if os.Getenv(shortVariable) != "" {
		during, each = time.Minute, 5*time.Second
	}
	read := map[string][]float64{}
	for end := time.Now().Add(during); time.Now().Before(end); {
		time.Sleep(each)
		for _, way := range ways {
			heap, err := tabs[way].Heap()
			if err != nil {
				return fmt.Errorf("memory, %s: %w", way, err)
			}
			read[way] = append(read[way], heap)
		}
	}
	for _, way := range ways {
		all := read[way]
		third := len(all) / 3
		first, last := mean(all[:third]), mean(all[len(all)-third:])
		b.report.Add("memory of a page at 1 Hz, KiB, the first third", way, "", first/1024)
		b.report.Add("memory of a page at 1 Hz, KiB, the last third", way, "", last/1024)
		b.report.Bound("memory-last/first-"+way, []float64{last / first}, "<=", flat)
	}
	return nil
}

func (b *bench) delays(tabs map[string]*tab, slowest int) error {
	means := map[string][]float64{}
	for _, way := range ways {
		if err := tabs[way].await(int64(delayMessages * (rates - slowest + 1))); err != nil {
			return fmt.Errorf("delay, %s: %w", way, err)
		}
		s, err := tabs[way].seen()
		if err != nil {
			return fmt.Errorf("delay, %s: %w", way, err)
		}
		for n := slowest; n <= rates; n++ {
			of := s.Delays[pacedChannel(n)]
			if len(of) != delayMessages/2 {
				return fmt.Errorf("delay at %.1f Hz, %s: %d of %d samples came", float64(n)/10, way, len(of), delayMessages/2)
			}
			m := mean(of)
			b.report.Add(fmt.Sprintf("delay at %.1f Hz, ms", float64(n)/10), way, "", m)
			means[way] = append(means[way], m)
		}
	}
	for _, way := range ways[:2] {
		b.report.Bound("delay-"+way+"/polling", []float64{mean(means[way]) / mean(means[polling])}, "", 0)
	}
	return nil
}

func mean(values []float64) float64 {
	sum := 0.0
	for v := range slices.Values(values) {
		sum += v
	}
	return sum / float64(len(values))
}
