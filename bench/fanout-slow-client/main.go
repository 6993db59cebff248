// SPDX-License-Identifier: Apache-2.0

// Command fanout-slow-client measures what fast consumers get while others of the same Feed are stalled or behind thin links.
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
	// during is how long each case is measured.
	during = 5 * time.Second
	// patience is how long the last sample may take to everybody.
	patience  = 30 * time.Second
	consumers = 1000

	// The goal: p99 of fast consumers beside slow ones, without so many milliseconds
	// of slack, to that without slow ones.
	slack = 5.0
	worst = 1.25
	// cores that feed-server and NATS may use without slow consumers.
	cores = 1.0
)

var rounds = report.Rounds(7)

// work is what everybody is sent.
type work struct {
	size, perSecond, consumers int
}

func (w work) String() string {
	return fmt.Sprintf("%d B, %d/s to %d", w.size, w.perSecond, w.consumers)
}

// works are UARC's messages, and OASIS's samples.
func works() []work {
	var all []work
	for _, n := range []int{6, 100, 1000} {
		for _, size := range []int{5_000, 40_000} {
			all = append(all, work{size, 1, n})
		}
	}
	return append(all, work{140, 1000, 6}, work{140, 1000, 100}, work{140, 20, 1000})
}

// shares of the consumers that are slow, in percent: half of them stalled, half
// behind thin links.
var shares = []int{0, 10, 50}

func main() { lab.Run(run, crowd.Main) }

func run(l *lab.Lab) error {
	flows := make([]wire.FlowEntry, consumers)
	for n := range flows {
		flows[n] = wire.FlowEntry{Mode: wire.FlowAll}
	}
	b := &bench{site: fanout.NewSite(l, fanout.Flows(flows)), crowd: crowd.Start(l), report: report.New("fanout-slow-client", rounds)}
	if err := b.offer(); err != nil {
		return err
	}
	for round := range b.report.Each() {
		for i := range b.works {
			for j := range shares {
				w, share := b.works[(i+round)%len(b.works)], shares[(j+round)%len(shares)]
				if err := b.measure(w, share, true); err != nil {
					return fmt.Errorf("%s, %d %% slow: %w", w, share, err)
				}
			}
		}
	}
	if err := b.conclude(); err != nil {
		return err
	}
	return b.report.Finish()
}

type bench struct {
	site   *fanout.Site
	crowd  *crowd.Crowd
	report *report.Report
	works  []work

	used float64 // cores in the last case
	most float64 // cores in any case without slow consumers
	out  crowd.Outcome
}

// offer finds the rates that can be offered: where feed-server and NATS take more
// than one core without slow consumers, half as much is.
func (b *bench) offer() error {
	for _, w := range works() {
		for asked := w.perSecond; ; {
			if err := b.measure(w, 0, false); err != nil {
				return fmt.Errorf("%s: %w", w, err)
			}
			fmt.Fprintf(os.Stderr, "%s: %.2f cores, p99 %.1f ms\n", w, b.used, b.out.P99)
			if b.used <= cores || w.perSecond == 1 {
				if w.perSecond != asked {
					b.report.Note("140 B to %d consumers: %d a second are offered, since %d took more than one core.", w.consumers, w.perSecond, asked)
				}
				break
			}
			w.perSecond /= 2
		}
		b.works = append(b.works, w)
	}
	return nil
}

// measure runs a case, and reports it.
func (b *bench) measure(w work, share int, counts bool) error {
	ctx := context.Background()
	slow := 0
	if share > 0 {
		slow = max(1, w.consumers*share/100)
	}
	open := make([]crowd.Consumer, w.consumers)
	var behind []string
	for n := range open {
		kind := crowd.Fast
		if n < slow {
			kind = []crowd.Kind{crowd.Stalled, crowd.Thin}[n%2]
			behind = append(behind, fanout.ConsumerName(n))
		}
		open[n] = b.site.Consumer(n, kind)
	}
	if err := b.site.Forget(ctx); err != nil {
		return err
	}
	if _, err := b.crowd.Do(crowd.Order{Open: open, Protocol: crowd.Substorm, After: b.site.Supply.Number()}); err != nil {
		return err
	}
	defer b.crowd.Close()
	if err := b.settle(ctx, behind); err != nil {
		return err
	}
	if _, err := b.crowd.Do(crowd.Order{Begin: true}); err != nil {
		return err
	}
	pids := []int{b.site.Server.PID(), b.site.NATS.PID()}
	before, err := process.Times(pids)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.site.Supply.Rate(ctx, w.perSecond, w.size, during); err != nil {
		return err
	}
	out, err := b.crowd.Do(crowd.Order{Until: b.site.Supply.Number(), Patience: patience})
	if err != nil {
		return err
	}
	after, err := process.Times(pids)
	if err != nil {
		return err
	}
	b.out, b.used = out, (after[0]+after[1]-before[0]-before[1]).Seconds()/time.Since(began).Seconds()
	if !counts {
		return nil
	}
	return b.note(w, share)
}

// settle floods all, until the slow consumers are behind and the fast ones are not.
func (b *bench) settle(ctx context.Context, slow []string) error {
	if err := b.site.Supply.Flood(ctx); err != nil {
		return err
	}
	if err := b.site.Behind(ctx, slow); err != nil {
		return err
	}
	out, err := b.crowd.Do(crowd.Order{Until: b.site.Supply.Number(), Patience: patience})
	if err == nil && out.Lost+out.Repeated > 0 {
		err = fmt.Errorf("of a flood of one MiB fast consumers lost %d samples, and got %d twice", out.Lost, out.Repeated)
	}
	return err
}

func (b *bench) note(w work, share int) error {
	peak, err := process.PeakMiB(b.site.Server.PID())
	if err != nil {
		return err
	}
	who := candidate(share)
	b.report.Add(w.String()+", p99 ms", who, "", b.out.P99)
	b.report.Add(w.String()+", cores", who, "", b.used)
	if share == 0 {
		b.most = max(b.most, b.used)
	}
	b.report.Add(lostCase, who, "", float64(b.out.Lost+b.out.Repeated+b.out.Ended))
	b.report.Add(memoryCase, who, "", peak)
	return nil
}

const (
	lostCase   = "lost, repeated or ended"
	memoryCase = "peak of feed-server, MiB"
)

func candidate(share int) string { return fmt.Sprintf("%d %% slow", share) }

func (b *bench) conclude() error {
	b.report.Note("Fast consumers only. Slow ones: half never read, half read %d B/s. A sample's time is that of its publication.", crowd.ThinRate)
	lost := 0.0
	for _, share := range shares {
		for _, v := range b.report.Values(lostCase, candidate(share)) {
			lost += v
		}
	}
	b.report.Bound("lost", []float64{lost}, "<=", 0)
	peaks := b.report.Values(memoryCase, candidate(shares[len(shares)-1]))
	b.report.Bound("peak-MiB", peaks[len(peaks)-1:], "<=", memoryBound)
	b.report.Bound("cores-without-slow", []float64{b.most}, "<=", cores)
	for _, share := range shares[1:] {
		for _, w := range b.works {
			b.compare(w, share)
		}
	}
	if lost > 0 {
		return fmt.Errorf("fast consumers lost %.0f samples", lost)
	}
	return nil
}

// compare sets latencies beside slow consumers against those without.
func (b *bench) compare(w work, share int) {
	name := w.String() + ", p99 ms"
	with, without := b.report.Values(name, candidate(share)), b.report.Values(name, candidate(0))
	values := make([]float64, len(with))
	for i := range with {
		values[i] = max(0, with[i]-slack) / without[i]
	}
	b.report.Bound(fmt.Sprintf("p99-%d%%slow/none-%dBx%d", share, w.size, w.consumers), values, "<=", worst)
}

// memoryBound is what feed-server may hold for 1,000 consumers, half of them slow: the ring of its stream (64 MiB), what is encoded of
// it, and a batch of 256 KiB for each.
const memoryBound = 512
