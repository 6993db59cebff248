// SPDX-License-Identifier: Apache-2.0

// Command flow-cost measures what the modes Latest and Sample put on the wire and cost, beside All on the same Feed.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/substorm/substorm/bench/internal/crowd"
	"github.com/substorm/substorm/bench/internal/fanout"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/wire"
)

const (
	during    = 6 * time.Second
	consumers = 20
	// goal: the bytes on the wire for each byte of samples that is delivered, to
	// those of All.
	goal = 1.5
)

var rounds = report.Rounds(5)

// work is what the Feed carries: so many samples of a size a second.
type work struct{ size, perSecond int }

func (w work) String() string { return fmt.Sprintf("%d B, %d/s", w.size, w.perSecond) }

var works = []work{{140, 1000}, {1400, 100}, {20_000, 10}}

// flow is a flow control, as a candidate.
type flow struct {
	name  string
	entry func(w work) wire.FlowEntry
}

// flows: what is not All is given a tenth.
var flows = []flow{
	{"All", func(work) wire.FlowEntry { return wire.FlowEntry{Mode: wire.FlowAll} }},
	{"Latest", func(w work) wire.FlowEntry {
		return wire.FlowEntry{Mode: wire.FlowLatest, MaxBytesPerSecond: int64(w.size * w.perSecond / 10)}
	}},
	{"Sample", func(w work) wire.FlowEntry {
		return wire.FlowEntry{Mode: wire.FlowSample, IntervalMillis: int64(10_000 / w.perSecond)}
	}},
}

func main() { lab.Run(run, crowd.Main) }

func run(l *lab.Lab) error {
	var entries []wire.FlowEntry
	for _, w := range works {
		for _, f := range flows {
			for range consumers {
				entries = append(entries, f.entry(w))
			}
		}
	}
	b := &bench{site: fanout.NewSite(l, fanout.Flows(entries)), crowd: crowd.Start(l), report: report.New("flow-cost", rounds)}
	for round := range b.report.Each() {
		for i := range works {
			for j := range flows {
				if err := b.measure((i+round)%len(works), (j+round)%len(flows)); err != nil {
					return err
				}
			}
		}
	}
	b.conclude()
	return b.report.Finish()
}

type bench struct {
	site   *fanout.Site
	crowd  *crowd.Crowd
	report *report.Report
}

func (b *bench) measure(workIndex, flowIndex int) error {
	ctx := context.Background()
	w, f := works[workIndex], flows[flowIndex]
	open := make([]crowd.Consumer, consumers)
	for n := range open {
		open[n] = b.site.Consumer((workIndex*len(flows)+flowIndex)*consumers+n, crowd.Fast)
	}
	if err := b.site.Forget(ctx); err != nil {
		return err
	}
	if _, err := b.crowd.Do(crowd.Order{Open: open, Protocol: crowd.Substorm, After: b.site.Supply.Number()}); err != nil {
		return err
	}
	defer b.crowd.Close()
	if _, err := b.crowd.Do(crowd.Order{Begin: true}); err != nil {
		return err
	}
	before, err := process.Time(b.site.Server.PID())
	if err != nil {
		return err
	}
	if err := b.site.Supply.Rate(ctx, w.perSecond, w.size, during); err != nil {
		return err
	}
	out, err := b.crowd.Do(crowd.Order{Until: b.site.Supply.Number(), Patience: time.Second})
	if err != nil {
		return err
	}
	after, err := process.Time(b.site.Server.PID())
	if err != nil {
		return err
	}
	if out.Samples == 0 || out.Ended > 0 {
		return fmt.Errorf("%s, %s: %d samples came, %d connections ended", w, f.name, out.Samples, out.Ended)
	}
	b.report.Add(w.String()+", samples/s", f.name, "", float64(out.Samples)/consumers/during.Seconds())
	b.report.Add(w.String()+", wire kB/s", f.name, "", float64(out.Wire)/consumers/during.Seconds()/1000)
	b.report.Add(w.String()+", wire B/B", f.name, "", float64(out.Wire)/float64(out.Bytes))
	b.report.Add(w.String()+", CPU ms/s", f.name, "", float64((after-before).Milliseconds())/during.Seconds())
	return nil
}

func (b *bench) conclude() {
	b.report.Note("%d fast consumers of one flow at a time. Latest has a tenth of the bytes as its rate, Sample a tenth of the samples as its interval.", consumers)
	for _, w := range works {
		for _, f := range flows[1:] {
			b.report.Compare(fmt.Sprintf("wire-per-delivered-byte-%s/All-%dB", f.name, w.size),
				[]report.Pair{{Case: w.String() + ", wire B/B", Candidate: f.name, OfCase: w.String() + ", wire B/B", OfCandidate: "All"}}, "<=", goal)
		}
	}
}
