// SPDX-License-Identifier: Apache-2.0

// Command ingest-small measures objects of 1.5, 5.3 and 32 KB with receipts, 64 senders with 32 in flight, beside minio-go PUT one by one.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/bench/internal/report"
)

const (
	window = 5 * time.Second
	// atHalf are more senders than are ever busy at half of the store's rate.
	atHalf = 128

	gateway, alone = "gateway", "store alone"
)

var rounds = report.Rounds(5)

var (
	sizes = []size{{1500, "1.5 KB", 8}, {5300, "5.3 KB", 5}, {32_000, "32 KB", 3}}
	// workers of minio-go: the best of these counts is used.
	workers = []int{64, 1024}
)

// size of an object, and how many times the store's rate is wanted.
type size struct {
	bytes int
	name  string
	goal  float64
}

func main() { lab.Run(run, receiver.Main, load.Main) }

// profiles names a folder for a processor profile.
const profiles = "SUBSTORM_BENCH_PROFILES"

type bench struct {
	report    *report.Report
	generator *load.Generator
	backends  receiver.Backends
	gateway   *receiver.Process
}

func run(l *lab.Lab) error {
	b := &bench{report: report.New("ingest-small", rounds), backends: receiver.StartBackends(l), generator: load.Start(l, nil)}
	if err := b.backends.ManyNotices(context.Background()); err != nil {
		return err
	}
	o := receiver.Options{Framing: "LengthPrefixed", PackBelow: load.SmallPackBelow}
	if dir := os.Getenv(profiles); dir != "" {
		o.Profile = filepath.Join(dir, "small.pprof")
	}
	b.gateway = receiver.StartSite(l, b.backends, o)
	for round := range b.report.Each() {
		for _, s := range sizes {
			if err := b.rates(round, s); err != nil {
				return err
			}
			if err := b.latencies(round, s); err != nil {
				return err
			}
		}
	}
	if peak, err := b.gateway.PeakMiB(); err == nil {
		b.report.Note("The gateway had at most %.0f MiB resident.", peak)
	}
	b.conclude()
	return b.report.Finish()
}

// rates measures who takes how many a second, flat out.
func (b *bench) rates(round int, s size) error {
	through := func() error {
		out, err := b.generator.Send(load.Small(b.gateway.Address, s.bytes, window))
		if err != nil {
			return fmt.Errorf("%s through the gateway: %w", s.name, err)
		}
		b.report.Add(s.name, gateway, "/s", out.BytesPerSecond/float64(s.bytes))
		return nil
	}
	direct := func() error {
		best := 0.0
		for _, w := range workers {
			out, err := b.generator.Send(load.Order{Objects: &b.backends.Bucket, Size: s.bytes, Senders: w, Duration: window})
			if err != nil {
				return fmt.Errorf("%s into the store, %d workers: %w", s.name, w, err)
			}
			best = max(best, out.BytesPerSecond/float64(s.bytes))
		}
		b.report.Add(s.name, alone, "/s", best)
		return nil
	}
	return inTurns(round, through, direct)
}

// latencies measures how long answers take at half of the store's greatest rate.
func (b *bench) latencies(round int, s size) error {
	known := b.report.Values(s.name, alone)
	rate := known[len(known)-1] / 2
	at := func(candidate string, o load.Order) func() error {
		return func() error {
			o.Size, o.Rate, o.Duration = s.bytes, rate, window
			out, err := b.generator.Send(o)
			if err != nil {
				return fmt.Errorf("%s at %.0f/s, %s: %w", s.name, rate, candidate, err)
			}
			b.report.Add(p50(s), candidate, "ms", out.P50)
			b.report.Add(p99(s), candidate, "ms", out.P99)
			return nil
		}
	}
	return inTurns(round,
		at(gateway, load.Order{Address: b.gateway.Address, Answer: load.Receipt, Senders: load.SmallSenders, InFlight: load.SmallInFlight}),
		at(alone, load.Order{Objects: &b.backends.Bucket, Senders: atHalf}))
}

func inTurns(round int, first, second func() error) error {
	if round%2 == 1 {
		first, second = second, first
	}
	if err := first(); err != nil {
		return err
	}
	return second()
}

func p50(s size) string { return s.name + " at half, p50" }
func p99(s size) string { return s.name + " at half, p99" }

func (b *bench) conclude() {
	r := b.report
	r.Note("%d senders, each with one connection and up to %d objects without a receipt; MinIO and JetStream (synced) behind the gateway.", load.SmallSenders, load.SmallInFlight)
	r.Note("%q is minio-go, one request an object, its digest known for nothing, at its best of %v workers.", alone, workers)
	r.Note("At half: objects are due at random instants (Poisson), half as many as the store takes by itself; times are since then.")
	pair := func(of string) []report.Pair {
		return []report.Pair{{Case: of, Candidate: gateway, OfCase: of, OfCandidate: alone}}
	}
	for _, s := range sizes {
		r.Compare(fmt.Sprintf("p50-receipt/PUT@%d", s.bytes), pair(p50(s)), "", 0)
	}
	for _, s := range sizes {
		r.Compare(fmt.Sprintf("gateway/store@%d", s.bytes), pair(s.name), ">=", s.goal)
	}
	for _, s := range sizes {
		r.Compare(fmt.Sprintf("p99-receipt/PUT@%d", s.bytes), pair(p99(s)), "<=", 3)
	}
}
