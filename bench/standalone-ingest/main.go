// SPDX-License-Identifier: Apache-2.0

// Command standalone-ingest measures what ingest-small and ingest-tcp send, into a whole Site in one process and beside it into a gateway with MinIO and a NATS server of their own.
//
// The Site in one process is `substorm up` with its object store on a folder and its NATS server, as it runs without a cluster. The other is the
// gateway of these benchmarks, with an archivist beside it, as programs of their own, MinIO over plain HTTP and NATS with every write synced, without accounts. Both lie on
// the same disk. Small objects come from 64 connections with 32 in flight and share packs (ingest-small); the others one over a connection of its
// own, from 1 and 3 senders, and are stored each by itself (ingest-tcp). Senders share the machine. SUBSTORM_BENCH_PROFILES=FOLDER keeps processor profiles of
// the Site in one process in the first round.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/standalone"
	"github.com/substorm/substorm/internal/wire"
)

var (
	rounds      = flag.Int("rounds", report.Rounds(5), "how often all is measured")
	smallWindow = flag.Duration("small-window", 5*time.Second, "how long small objects are sent for one figure")
	largeWindow = flag.Duration("large-window", 800*time.Millisecond, "how long others are sent for one figure")
)

// The candidates.
const own, servers = "substorm up", "gateway, MinIO, NATS"

// The instruments of the Site in one process.
const small, large = "small", "large"

// The goals, to the gateway with servers of its own: up to a size in bytes, and from one on.
const (
	upTo, goalSmall = 32 << 10, 1.5
	from, goalLarge = 8 << 20, 1.0
)

func main() { lab.Run(run, receiver.Main, load.Main) }

type bench struct {
	report    *report.Report
	generator *load.Generator
	site      *standalone.Site
	// addresses by instrument and candidate.
	addresses map[string]map[string]string
}

func run(l *lab.Lab) error {
	flag.Parse()
	if *rounds < 1 || *smallWindow <= 0 || *largeWindow <= 0 {
		return errors.New("-rounds and the windows must be greater than 0")
	}
	b := &bench{report: report.New("standalone-ingest", *rounds), generator: load.Start(l, nil)}
	if err := b.start(l); err != nil {
		return err
	}
	for round := range b.report.Each() {
		for _, size := range load.SmallSizes {
			if err := b.both(round, small, smallCase(size), size, func(address string) load.Order { return load.Small(address, size, *smallWindow) }); err != nil {
				return err
			}
		}
		for _, size := range load.StoreSizes {
			for _, senders := range load.StoreSenders {
				if err := b.both(round, large, largeCase(size, senders), size, func(address string) load.Order { return load.Large(address, size, senders, *largeWindow) }); err != nil {
					return err
				}
			}
		}
	}
	b.conclude()
	return b.report.Finish()
}

// start starts both. The gateway of these benchmarks has one instrument, so there are two, each with servers of its own.
func (b *bench) start(l *lab.Lab) error {
	b.site = standalone.New(l, standalone.Options{Instruments: []standalone.Instrument{
		{Name: small, Framing: wire.FramingLengthPrefixed, Acknowledge: "Stored"},
		{Name: large, Framing: wire.FramingUntilClose, Acknowledge: "Stored", PackBelow: "0"},
	}})
	if err := b.site.Start(); err != nil {
		return err
	}
	forSmall, forLarge := receiver.StartBackends(l), receiver.StartBackends(l)
	if err := forSmall.ManyNotices(context.Background()); err != nil {
		return err
	}
	b.addresses = map[string]map[string]string{
		small: {
			own:     b.site.Address(small),
			servers: receiver.StartSite(l, forSmall, receiver.Options{Framing: wire.FramingLengthPrefixed, PackBelow: load.SmallPackBelow}).Address,
		},
		large: {own: b.site.Address(large), servers: receiver.StartSite(l, forLarge, receiver.Options{}).Address},
	}
	return nil
}

// both measures both candidates, another one first each time.
func (b *bench) both(round int, instrument, name string, size int, order func(address string) load.Order) error {
	for i := range 2 {
		candidate := []string{own, servers}[(round+i)%2]
		o := order(b.addresses[instrument][candidate])
		profiled := make(chan error, 1)
		if candidate == own && round == 0 {
			go func() {
				profiled <- b.site.KeepProfile(fmt.Sprintf("profile?seconds=%.0f", math.Ceil(o.Duration.Seconds())), name)
			}()
		} else {
			profiled <- nil
		}
		out, err := b.generator.Send(o)
		if err = errors.Join(err, <-profiled); err != nil {
			return fmt.Errorf("%s, %s: %w", candidate, name, err)
		}
		b.report.Add(name, candidate, "/s", out.BytesPerSecond/float64(size))
	}
	return nil
}

func smallCase(size int) string { return fmt.Sprintf("%.1f KB in packs", float64(size)/1000) }

func largeCase(size, senders int) string { return fmt.Sprintf("%d KiB, %d senders", size>>10, senders) }

func (b *bench) conclude() {
	b.report.Note("Objects a second. A ratio over 1 and 3 senders is of geometric means. Receipts are given once an object is stored and its notice synced.")
	for _, size := range load.SmallSizes {
		b.compare(fmt.Sprintf("standalone/servers-packs@%d", size), size, smallCase(size))
	}
	for _, size := range load.StoreSizes {
		var cases []string
		for _, senders := range load.StoreSenders {
			cases = append(cases, largeCase(size, senders))
		}
		b.compare(fmt.Sprintf("standalone/servers@%dKiB", size>>10), size, cases...)
	}
}

func (b *bench) compare(name string, size int, cases ...string) {
	var pairs []report.Pair
	for _, c := range cases {
		pairs = append(pairs, report.Pair{Case: c, Candidate: own, OfCase: c, OfCandidate: servers})
	}
	op, goal := "", 0.0
	switch {
	case size <= upTo:
		op, goal = ">=", goalSmall
	case size >= from:
		op, goal = ">=", goalLarge
	}
	b.report.Compare(name, pairs, op, goal)
}
