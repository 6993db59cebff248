// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/substorm/substorm/bench/internal/relay"
)

// flushes are the thesis' ten fixed numbers of messages.
const flushes = 10

// flushInterval is how soon after another a message is sent.
const flushInterval = 20 * time.Millisecond

// bytesOnTheWire counts what goes over the connection of a page, both ways, until
// 10, 20 … 100 messages have come.
func (b *bench) bytesOnTheWire() error {
	for round := range rounds {
		for i := range ways {
			way := ways[(i+round)%len(ways)]
			if err := b.flush(way); err != nil {
				return fmt.Errorf("bytes on the wire, %s: %w", way, err)
			}
		}
	}
	for _, way := range ways[:2] {
		b.bound("bytes on the wire, B a sample of 140 B", way)
	}
	fmt.Fprintln(os.Stderr, "bytes on the wire are counted")
	return nil
}

// bound reports a way beside polling.
func (b *bench) bound(figure, way string) {
	mine, theirs := b.report.Values(figure, way), b.report.Values(figure, polling)
	ratios := make([]float64, len(mine))
	for i := range mine {
		ratios[i] = mine[i] / theirs[i]
	}
	b.report.Bound("wire-"+way+"/polling", ratios, "", 0)
}

func (b *bench) flush(way string) error {
	ctx := context.Background()
	target := b.site.Server.Address()
	if way == polling {
		target = b.polls[flushed].address
	}
	r, err := relay.Start(b.lab, target)
	if err != nil {
		return err
	}
	t, err := b.open(flushed, way, r.Address())
	if err != nil {
		return err
	}
	defer t.Close()
	supply := b.site.NewSupply(flushed)
	begin, sent := r.Bytes(), int64(0)
	for n := 1; n <= flushes; n++ {
		for range 10 {
			if err := supply.Publish(ctx, 1, processorProbe); err != nil {
				return err
			}
			sent++
			time.Sleep(flushInterval)
		}
		if err := t.await(sent); err != nil {
			return err
		}
	}
	b.report.Add("bytes on the wire, B a sample of 140 B", way, "", float64(r.Bytes()-begin)/float64(sent))
	return nil
}

// await waits until a page has seen so many samples.
func (t *tab) await(samples int64) error {
	for end := time.Now().Add(tabTimeout); ; {
		s, err := t.seen()
		if err != nil {
			return err
		}
		if s.Samples >= samples {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the page has seen %d of %d samples", s.Samples, samples)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
