// SPDX-License-Identifier: Apache-2.0

// Command uarc runs the four set-ups in which UARC's clients lost messages, with links shaped in the client: what fast consumers lose, and how long messages take before and after a slow one comes.
package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/bench/internal/crowd"
	"github.com/substorm/substorm/bench/internal/fanout"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/wire"
)

const (
	clients = 6
	// phase is how long each set-up runs before, and again after, the slow client.
	phase    = 20 * time.Second
	patience = 30 * time.Second
	// slack in milliseconds, and how much longer than before messages may take beyond
	// it: what is more is a spike that all share.
	slack = 5.0
	spike = 1.25
	// commonSpike in milliseconds is what fails the run: the study's were of seconds.
	commonSpike = 500
)

var rounds = report.Rounds(5)

func main() { lab.Run(run, crowd.Main) }

type bench struct {
	site   *fanout.Site
	crowd  *crowd.Crowd
	report *report.Report
}

func run(l *lab.Lab) error {
	flows := make([]wire.FlowEntry, clients+1)
	for n := range flows {
		flows[n] = wire.FlowEntry{Mode: wire.FlowAll}
	}
	b := &bench{site: fanout.NewSite(l, fanout.Flows(flows)), crowd: crowd.Start(l), report: report.New("uarc", rounds)}
	for range b.report.Each() {
		for _, setUp := range []func() error{b.slowJoins, b.campaign, b.sizes, b.oneStalls} {
			if err := setUp(); err != nil {
				return err
			}
		}
	}
	b.report.Note("Slow: %d B/s, which the client reads no faster than. Latency from publication to arrival, of fast consumers.", crowd.ThinRate)
	b.report.Bound("lost", []float64{sum(b.report.Values(lost, fast))}, "<=", 0)
	for _, of := range []string{slowJoinsCase, oneStallsCase} {
		before, after := b.report.Values(of+", p99 ms", "before"), b.report.Values(of+", p99 ms", "with a slow one")
		ratios := make([]float64, len(before))
		for i := range before {
			ratios[i] = math.Max(0, after[i]-slack) / before[i]
		}
		b.report.Bound("p99-after/before-"+of, ratios, "<=", spike)
		b.report.Bound("common-ms-"+of, b.report.Values(of+", common ms", "with a slow one"), "<=", commonSpike)
	}
	if err := b.report.Finish(); err != nil {
		return err
	}
	return b.verdict()
}

// verdict fails where what the study saw has happened: fast consumers lost
// something, or all of them waited at once when a slow one came.
func (b *bench) verdict() error {
	if n := sum(b.report.Values(lost, fast)); n > 0 {
		return fmt.Errorf("fast consumers lost %.0f messages", n)
	}
	for _, of := range []string{slowJoinsCase, oneStallsCase} {
		for _, v := range b.report.Values(of+", common ms", "with a slow one") {
			if v > commonSpike {
				return fmt.Errorf("%s: with a slow consumer there, all others waited %.0f ms for one message", of, v)
			}
		}
	}
	return nil
}

const (
	lost          = "lost, repeated or ended"
	fast          = "fast consumers"
	slowJoinsCase = "fig-10-11"
	campaignCase  = "fig-12"
	sizesCase     = "fig-14-15"
	oneStallsCase = "fig-16"
)

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

func (b *bench) open(first, n int, kind crowd.Kind) error {
	var open []crowd.Consumer
	for i := range n {
		open = append(open, b.site.Consumer(first+i, kind))
	}
	_, err := b.crowd.Do(crowd.Order{Open: open, Protocol: crowd.Substorm, After: b.site.Supply.Number()})
	return err
}

// count measures while supply publishes, and reports it as a figure of candidate.
func (b *bench) count(of, candidate string, supply func(context.Context) error) error {
	if _, err := b.crowd.Do(crowd.Order{Begin: true}); err != nil {
		return err
	}
	if err := supply(context.Background()); err != nil {
		return err
	}
	out, err := b.crowd.Do(crowd.Order{Until: b.site.Supply.Number(), Patience: patience})
	if err != nil {
		return err
	}
	b.report.Add(of+", p50 ms", candidate, "", out.P50)
	b.report.Add(of+", p99 ms", candidate, "", out.P99)
	b.report.Add(of+", common ms", candidate, "", out.Common)
	b.report.Add(lost, fast, "", float64(out.Lost+out.Repeated+out.Ended))
	return nil
}

func (b *bench) steady(size int) func(context.Context) error {
	return func(ctx context.Context) error { return b.site.Supply.Rate(ctx, 1, size, phase) }
}

// slowJoins: 40,000 B a second to one client, which a second one on a slow link
// joins.
func (b *bench) slowJoins() error {
	defer b.crowd.Close()
	if err := b.open(0, 1, crowd.Fast); err != nil {
		return err
	}
	if err := b.count(slowJoinsCase, "before", b.steady(40_000)); err != nil {
		return err
	}
	if err := b.open(1, 1, crowd.Thin); err != nil {
		return err
	}
	return b.count(slowJoinsCase, "with a slow one", b.steady(40_000))
}

// faster is how much the campaign's mix is compressed in time.
const faster = 12

// campaign: the mix of the campaign to one, three and six clients; half of them are on slow links.
func (b *bench) campaign() error {
	for _, n := range []int{1, 3, clients} {
		if err := b.mix(n); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) mix(n int) error {
	defer b.crowd.Close()
	if err := b.open(0, n-n/2, crowd.Fast); err != nil {
		return err
	}
	if n > 1 {
		if err := b.open(n-n/2, n/2, crowd.Thin); err != nil {
			return err
		}
	}
	return b.count(campaignCase, fmt.Sprintf("%d clients", n), func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		for _, s := range load.UARC {
			g.Go(func() error { return b.site.Supply.Every(ctx, s.Interval/faster, s.Size, phase) })
		}
		return g.Wait()
	})
}

// sizes: a message a second of 5,000 to 40,000 B to two local and four remote
// clients.
func (b *bench) sizes() error {
	defer b.crowd.Close()
	if err := b.open(0, 2, crowd.Fast); err != nil {
		return err
	}
	if err := b.open(2, 4, crowd.Thin); err != nil {
		return err
	}
	for _, size := range []int{5_000, 10_000, 20_000, 30_000, 40_000} {
		if err := b.count(sizesCase, fmt.Sprintf("%d B", size), func(ctx context.Context) error {
			return b.site.Supply.Rate(ctx, 1, size, phase/4)
		}); err != nil {
			return err
		}
	}
	return nil
}

// oneStalls: 10,000 B a second to six clients; one of them stops reading.
func (b *bench) oneStalls() error {
	defer b.crowd.Close()
	if err := b.open(0, clients-1, crowd.Fast); err != nil {
		return err
	}
	if err := b.count(oneStallsCase, "before", b.steady(10_000)); err != nil {
		return err
	}
	if err := b.open(clients-1, 1, crowd.Stalled); err != nil {
		return err
	}
	if err := b.site.Supply.Flood(context.Background()); err != nil {
		return err
	}
	if err := b.site.Behind(context.Background(), []string{fanout.ConsumerName(clients - 1)}); err != nil {
		return err
	}
	if _, err := b.crowd.Do(crowd.Order{Until: b.site.Supply.Number(), Patience: patience}); err != nil {
		return err
	}
	return b.count(oneStallsCase, "with a slow one", b.steady(10_000))
}
