// SPDX-License-Identifier: Apache-2.0

// Command ingest-latency measures how long receipts of 256 KiB and 1 MiB take at half of the store's greatest rate, beside the store's own PUT.
package main

import (
	"fmt"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/bench/internal/report"
)

const (
	window      = 8 * time.Second
	calibration = 3 * time.Second
	// senders are more than are ever busy at half load.
	senders = 128
)

var rounds = report.Rounds(5)

var (
	sizes = []int{256 << 10, 1 << 20}
	// workers: the best of these counts gives the store's greatest rate.
	workers = []int{4, 8, 16}
)

func main() { lab.Run(run, receiver.Main, load.Main) }

func run(l *lab.Lab) error {
	r := report.New("ingest-latency", rounds)
	backends, generator := receiver.StartBackends(l), load.Start(l, nil)
	gateway := receiver.StartSite(l, backends, receiver.Options{})
	rates, err := calibrate(r, generator, backends)
	if err != nil {
		return err
	}
	// One object first: a histogram that nothing came to is not there.
	if _, err := generator.Send(load.Order{Address: gateway.Address, Answer: load.Receipt, Size: sizes[0], Senders: 1}); err != nil {
		return err
	}
	spent := map[int]*stages{}
	for _, size := range sizes {
		spent[size] = &stages{gateway: gateway}
	}
	for round := range r.Each() {
		for _, size := range sizes {
			orders := []load.Order{{Address: gateway.Address, Answer: load.Receipt}, {Objects: &backends.Bucket}}
			names := []string{"receipt", "store alone"}
			for i := range orders {
				k := (i + round) % len(orders)
				o := orders[k]
				o.Size, o.Senders, o.Duration, o.Rate = size, senders, window, rates[size]
				out, err := spent[size].during(k == 0, func() (load.Outcome, error) { return generator.Send(o) })
				if err != nil {
					return fmt.Errorf("%s, %d KiB: %w", names[k], size>>10, err)
				}
				r.Add(p50(size), names[k], "ms", out.P50)
				r.Add(p99(size), names[k], "ms", out.P99)
			}
		}
	}
	for _, size := range sizes {
		r.Note("On the way to a receipt of %d KiB, on average: %s.", size>>10, spent[size])
	}
	conclude(r)
	return r.Finish()
}

// calibrate finds half of the store's greatest rate for each size, in objects a second.
func calibrate(r *report.Report, g *load.Generator, backends receiver.Backends) (map[int]float64, error) {
	rates := map[int]float64{}
	for _, size := range sizes {
		best := 0.0
		for _, w := range workers {
			out, err := g.Send(load.Order{Objects: &backends.Bucket, Size: size, Senders: w, Duration: calibration})
			if err != nil {
				return nil, fmt.Errorf("the store's rate: %w", err)
			}
			best = max(best, out.BytesPerSecond/float64(size))
		}
		rates[size] = best / 2
		r.Note("The store's greatest rate for %d KiB: %.0f a second; half of it, %.0f a second, goes to it and to the gateway.", size>>10, best, best/2)
	}
	return rates, nil
}

func p50(size int) string { return fmt.Sprintf("%d KiB, p50", size>>10) }
func p99(size int) string { return fmt.Sprintf("%d KiB, p99", size>>10) }

func conclude(r *report.Report) {
	r.Note("Objects are due at random instants (Poisson); times are since then, the receipt's to its last byte, the store's to its answer.")
	for _, size := range sizes {
		pair := func(name string) []report.Pair {
			return []report.Pair{{Case: name, Candidate: "receipt", OfCase: name, OfCandidate: "store alone"}}
		}
		r.Compare(fmt.Sprintf("p50-receipt/PUT@%dKiB", size>>10), pair(p50(size)), "", 0)
	}
	for _, size := range sizes {
		pair := []report.Pair{{Case: p99(size), Candidate: "receipt", OfCase: p99(size), OfCandidate: "store alone"}}
		r.Compare(fmt.Sprintf("p99-receipt/PUT@%dKiB", size>>10), pair, "<=", 2)
	}
}
