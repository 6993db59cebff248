// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/substorm/substorm/bench/internal/crowd"
)

const (
	// throughputFor is how long samples are sent as fast as a client takes them, and
	// pages may take that again for what is left.
	throughputFor = 10 * time.Second
	// inMessage is how many samples a message has: what a gateway gathers in 100 ms
	// of such a rate, and no more than 256 KiB.
	inMessage = 1000
	patience  = 2 * time.Minute
	// goal is 20 times what the thesis' sockets carried, in samples a minute.
	goal = 3.2e6
)

// throughput sends samples of both probes as fast as they are stored to a Go client,
// and what that took to pages.
func (b *bench) throughput() error {
	for round := range rounds {
		if err := b.toGo(); err != nil {
			return fmt.Errorf("throughput, Go: %w", err)
		}
		for i := range ways {
			way := ways[(i+round)%len(ways)]
			if err := b.toPage(way); err != nil {
				return fmt.Errorf("throughput, %s: %w", way, err)
			}
		}
	}
	b.report.Bound("go-client-samples-a-minute", b.report.Values(samplesCase, goClient), ">=", goal)
	b.report.Bound("go-client-lost", b.report.Values(lostCase, goClient), "<=", 0)
	fmt.Fprintln(os.Stderr, "throughput is measured")
	return nil
}

const (
	samplesCase = "throughput, samples/min"
	lostCase    = "throughput, lost"
	goClient    = "Go, websocket"
)

// pump publishes samples of both probes by turns until a time; it returns how many.
func (b *bench) pump(ctx context.Context, until time.Time) (uint64, error) {
	supply := b.site.NewSupply(full)
	for n := 0; time.Now().Before(until); n++ {
		size := []int{processorProbe, memoryProbe}[n%2]
		if err := supply.Publish(ctx, inMessage, size); err != nil {
			return 0, err
		}
	}
	return supply.Number(), nil
}

func (b *bench) toGo() error {
	ctx := context.Background()
	if err := b.site.Forget(ctx); err != nil {
		return err
	}
	if _, err := b.crowd.Do(crowd.Order{Open: []crowd.Consumer{{URL: b.from(full, webSocket, ""), Kind: crowd.Fast}}, Protocol: crowd.Substorm}); err != nil {
		return err
	}
	defer b.crowd.Close()
	if _, err := b.crowd.Do(crowd.Order{Begin: true}); err != nil {
		return err
	}
	sent, err := b.pump(ctx, time.Now().Add(throughputFor))
	if err != nil {
		return err
	}
	out, err := b.crowd.Do(crowd.Order{Until: sent, Patience: patience})
	if err != nil {
		return err
	}
	b.report.Add(samplesCase, goClient, "", float64(out.Samples)/out.Seconds*60)
	b.report.Add(lostCase, goClient, "", float64(out.Lost+out.Repeated))
	return nil
}

// toPage sends as much to a page. The result is the rate of the samples that have come when sending ends.
func (b *bench) toPage(way string) error {
	ctx := context.Background()
	if err := b.site.Forget(ctx); err != nil {
		return err
	}
	t, err := b.open(full, way, "")
	if err != nil {
		return err
	}
	defer t.Close()
	begun := time.Now()
	if _, err := b.pump(ctx, begun.Add(throughputFor)); err != nil {
		return err
	}
	s, err := t.seen()
	if err != nil {
		return err
	}
	b.report.Add(samplesCase, "Chromium, "+way, "", float64(s.Samples)/time.Since(begun).Minutes())
	return nil
}
