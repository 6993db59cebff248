// SPDX-License-Identifier: Apache-2.0

// Command storm-live plays a storm on real pods of a cluster, in turn for our loop with space weather and for HorizontalPodAutoscaler's defaults.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/substorm/substorm/bench/internal/aurora"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// shortest is how short a storm may be: pods start as slowly as always.
	shortest = time.Minute
	// intervals of three hours that a storm has. Kp is known at the end of each.
	intervals = 20
	// The crowd comes after so many intervals, and is gone after so many.
	crowdFrom, crowdTo = 6, 15
	// crowdTimes is how much of everything there is in the storm, beside the calm.
	crowdTimes = 4
	// headStart is how soon a storm begins after all know when it does.
	headStart = 5 * time.Second
	// tellEvery is how often a line says how things are.
	tellEvery = 15 * time.Second
)

// The parts of a storm.
const (
	calm  = "calm"
	crowd = "crowd"
	after = "after"
)

func main() {
	lab.Run(run, func() { process.Work(readersEnvironment, ask) }, func() { process.Work(sendersEnvironment, send) })
}

// part is one of a storm.
type part struct {
	Name string
	For  time.Duration
	// Times is how many requests and objects there are, beside the calm; Addresses how many clients.
	Times     float64
	Addresses int
}

// parts are what a storm of some length has.
func parts(storm time.Duration) []part {
	interval := storm / intervals
	return []part{
		{calm, crowdFrom * interval, 1, 1},
		{crowd, (crowdTo - crowdFrom) * interval, crowdTimes, aurora.StormAddresses},
		{after, (intervals - crowdTo) * interval, 1, 1},
	}
}

// bench is the run.
type bench struct {
	*cluster
	report  *report.Report
	archive aurora.Archive
	day     aurora.Day
	readers *process.Worker[asking, answered]
	senders *process.Worker[sending, sent]
	authority
	storm time.Duration
	began time.Time
	// The load that takes half of a pod: how fast the study's day goes, and objects a second.
	speed   int
	objects float64
	// receipts that senders hold, by instrument.
	receipts map[string]map[wire.Digest]bool
	// lost is how many of them are, by policy.
	lost []float64
}

func run(l *lab.Lab) error {
	storm := flag.Duration("storm", 10*time.Minute, "how long a storm lasts; policies have one each in every round")
	rounds := flag.Int("rounds", report.Rounds(1), "how often each policy has its storm")
	keep := flag.Bool("keep", false, "leave the cluster "+clusterName+" as it is at the end")
	flag.Parse()
	if *storm < shortest || *rounds < 1 {
		return fmt.Errorf("-storm is at least %v, and -rounds at least 1", shortest)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // before the cluster is removed: no more requests for its pods
	b := &bench{began: time.Now(), storm: storm.Truncate(intervals * time.Second), receipts: map[string]map[wire.Digest]bool{}}
	var err error
	if b.authority, err = newAuthority(); err != nil {
		return err
	}
	if b.cluster, err = newCluster(ctx, l, *keep); err != nil {
		return err
	}
	if err := b.declare(ctx); err != nil {
		return err
	}
	if err := b.fill(ctx); err != nil {
		return err
	}
	b.readers = process.StartWorker[asking, answered](l, readersEnvironment, nil)
	b.senders = process.StartWorker[sending, sent](l, sendersEnvironment, nil)
	if err := b.calibrate(ctx); err != nil {
		return err
	}
	b.report = report.New("storm-live", *rounds)
	if err := b.measure(ctx); err != nil {
		return err
	}
	return b.report.Finish()
}

// line prints a line for the user.
func (b *bench) line(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.0fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// measure gives each policy its storm in every round, beginning with another one each time.
func (b *bench) measure(ctx context.Context) error {
	var all []result
	for round := range b.report.Each() {
		for i := range policies {
			policy := policies[(round+i)%len(policies)]
			r, err := b.play(ctx, policy, uint64(round))
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, policy.name, err)
			}
			b.add(r)
			all = append(all, r)
		}
	}
	if err := b.compare(ctx); err != nil {
		return err
	}
	b.tell(all)
	return nil
}
