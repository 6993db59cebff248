// SPDX-License-Identifier: Apache-2.0

// Command fanout-throughput measures how fast messages reach 1,000 WebSocket clients, beside nginx with nchan and NATS's own WebSocket listener.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/substorm/substorm/bench/internal/crowd"
	"github.com/substorm/substorm/bench/internal/fanout"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/wire"
)

const (
	clients = 1000
	// patience is how long the last message may take.
	patience = 2 * time.Minute
	goal     = 0.8
)

var rounds = report.Rounds(5)

// work is what is published as fast as it is taken: so many messages of a size.
type work struct{ size, messages int }

func (w work) String() string { return fmt.Sprintf("%d B", w.size) }

var works = []work{{1_000, 400}, {5_000, 100}, {40_000, 12}}

// server is a candidate: 1,000 clients of it are sent what is published.
type server interface {
	name() string
	protocol() crowd.Protocol
	consumer(n int) crowd.Consumer
	// publish publishes messages, numbered from first on, and returns once the
	// server has them.
	publish(ctx context.Context, first uint64, w work) error
	// pids of all that the candidate needs.
	pids() ([]int, error)
}

func main() { lab.Run(run, crowd.Main) }

func run(l *lab.Lab) error {
	flows := make([]wire.FlowEntry, clients)
	for n := range flows {
		flows[n] = wire.FlowEntry{Mode: wire.FlowAll}
	}
	site := fanout.NewSite(l, fanout.Flows(flows))
	nchan, err := startNchan(l)
	if err != nil {
		return err
	}
	b := &bench{crowd: crowd.Start(l), report: report.New("fanout-throughput", rounds)}
	servers := []server{&ours{site}, nchan, startNATS(l)}
	for round := range b.report.Each() {
		for i := range works {
			for j := range servers {
				w, s := works[(i+round)%len(works)], servers[(j+round)%len(servers)]
				if err := b.measure(s, w); err != nil {
					return fmt.Errorf("%s, %s: %w", s.name(), w, err)
				}
			}
		}
	}
	b.conclude()
	return b.report.Finish()
}

type bench struct {
	crowd  *crowd.Crowd
	report *report.Report
	number uint64
}

func (b *bench) measure(s server, w work) error {
	ctx := context.Background()
	open := make([]crowd.Consumer, clients)
	for n := range open {
		open[n] = s.consumer(n)
		open[n].Kind = crowd.Fast
	}
	if _, err := b.crowd.Do(crowd.Order{Open: open, Protocol: s.protocol(), After: b.number}); err != nil {
		return err
	}
	defer b.crowd.Close()
	// One message, so that everybody has seen one before the clock runs.
	first := b.number + 1
	if err := s.publish(ctx, first, work{w.size, 1}); err != nil {
		return err
	}
	if _, err := b.crowd.Do(crowd.Order{Until: first, Patience: patience}); err != nil {
		return err
	}
	before, err := used(s)
	if err != nil {
		return err
	}
	if _, err := b.crowd.Do(crowd.Order{Begin: true}); err != nil {
		return err
	}
	if err := s.publish(ctx, first+1, w); err != nil {
		return err
	}
	b.number = first + uint64(w.messages)
	out, err := b.crowd.Do(crowd.Order{Until: b.number, Patience: patience})
	if err != nil {
		return err
	}
	after, err := used(s)
	if err != nil {
		return err
	}
	if out.Lost+out.Repeated+out.Ended > 0 {
		return fmt.Errorf("%d messages lost, %d repeated, %d connections ended", out.Lost, out.Repeated, out.Ended)
	}
	fmt.Fprintf(os.Stderr, "%s, %s: %.0f MB/s, p99 %.0f ms\n", s.name(), w, float64(out.Bytes)/1e6/out.Seconds, out.P99)
	b.report.Add(w.String(), s.name(), "MB/s", float64(out.Bytes)/1e6/out.Seconds)
	b.report.Add(w.String()+", CPU", s.name(), "ns/B", float64((after-before).Nanoseconds())/float64(out.Bytes))
	return nil
}

func used(s server) (total time.Duration, err error) {
	pids, err := s.pids()
	if err != nil {
		return 0, err
	}
	times, err := process.Times(pids)
	for _, t := range times {
		total += t
	}
	return total, err
}

func (b *bench) conclude() {
	b.report.Note("%d clients of one process on the same two cores, each of which gets every message; from the first publication to the last arrival.", clients)
	b.report.Note("CPU of %s is that of feed-server and NATS, which syncs each message; nothing of the others' is kept.", oursName)
	for _, w := range works {
		values := b.report.Values(w.String(), oursName)
		ratios := make([]float64, len(values))
		for i, v := range values {
			ratios[i] = v / max(b.report.Values(w.String(), nchanName)[i], b.report.Values(w.String(), natsName)[i])
		}
		b.report.Bound(fmt.Sprintf("feed-server/better-peer-%dB", w.size), ratios, ">=", goal)
	}
}
