// SPDX-License-Identifier: Apache-2.0

// Command broken-site measures ten Sites in ten namespaces: how soon changes in nine are in their registries, while the servers of the tenth answer, hang, and turn away.
package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/bench/internal/control"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/testenv"
)

const (
	sites       = 10
	instruments = 40
	rounds      = 3
	// pace of the changes, of all Sites in turn; each tenth is in the broken one.
	pace = 20 * time.Millisecond
	// limit of what is waited for.
	limit = 2 * time.Minute
)

func main() { lab.Run(run) }

// bench is what is measured: the last of the Sites reaches its servers over ways that can be broken.
type bench struct {
	sites   []*control.Site
	op      *control.Operator
	toStore *testenv.Relay
	toNATS  *testenv.Relay
	changes int
}

func run(l *lab.Lab) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	phase, err := lab.Duration("SUBSTORM_BENCH_BROKEN_TIME", 20*time.Second)
	if err != nil {
		return err
	}
	b, err := start(ctx, l)
	if err != nil {
		return err
	}
	ways := []struct {
		name   string
		breaks func(*testenv.Relay)
	}{{"all answer", nil}, {"the tenth hangs", (*testenv.Relay).Hang}, {"the tenth turns away", (*testenv.Relay).Cut}}
	r := report.New("broken-site", report.Rounds(rounds))
	for round := range r.Each() {
		for i := range ways {
			way := ways[(i+round)%len(ways)]
			if err := b.measure(ctx, r, way.name, way.breaks, phase); err != nil {
				return err
			}
		}
	}
	for _, way := range ways[1:] {
		name := strings.ReplaceAll(way.name, " ", "-")
		r.Compare("broken-site-p50-"+name, []report.Pair{{Case: "p50", Candidate: way.name, OfCase: "p50", OfCandidate: ways[0].name}}, "<=", 1.25)
		r.Compare("broken-site-p99-"+name, []report.Pair{{Case: "p99", Candidate: way.name, OfCase: "p99", OfCandidate: ways[0].name}}, "<=", 1.5)
	}
	r.Note("%d Sites with %d Instruments each, a change every %v, of all Sites in turn; times are those of the nine", sites, instruments, pace)
	return r.Finish()
}

// start installs the Sites.
func start(ctx context.Context, l *lab.Lab) (*bench, error) {
	backends := control.Start(l)
	b := &bench{toStore: testenv.StartRelay(l, backends.MinIO.Address()), toNATS: testenv.StartRelay(l, backends.NATS.Address())}
	var names []string
	for i := range sites {
		names = append(names, fmt.Sprintf("site-%d", i))
		its := backends
		if i == sites-1 {
			its.ToStore, its.ToNATS = b.toStore, b.toNATS
		}
		s, err := control.NewSite(ctx, l, its, names[i], control.Size{Instruments: instruments, Gateways: 1, Feeds: 1, Consumers: 1})
		if err != nil {
			return nil, err
		}
		b.sites = append(b.sites, s)
	}
	var err error
	if b.op, err = control.StartOperator(l, backends.API, strings.Join(names, ",")); err != nil {
		return nil, err
	}
	for _, s := range b.sites {
		if _, err := s.Install(ctx, limit); err != nil {
			return nil, err
		}
		if n := s.Seen.Programmed(); n != instruments {
			return nil, fmt.Errorf("%d of %d Instruments of %s are Programmed after %v", n, instruments, s.Name, limit)
		}
	}
	return b, nil
}

// measure changes Instruments for the length of a phase, while the last Site's servers are as breaks leaves
// them, and then waits until all is as declared.
func (b *bench) measure(ctx context.Context, r *report.Report, name string, breaks func(*testenv.Relay), phase time.Duration) error {
	for _, s := range b.sites {
		s.Seen.ForgetWaits()
	}
	if breaks != nil {
		breaks(b.toStore)
		breaks(b.toNATS)
	}
	made := make([]int, sites)
	used, err := b.op.Uses(phase, func() error { return b.change(ctx, made, phase) })
	if err != nil {
		return err
	}
	var waits []time.Duration
	for i, s := range b.sites[:sites-1] {
		control.Within(ctx, limit, func() bool { return len(s.Seen.Waits()) == made[i] })
		if n := len(s.Seen.Waits()); n != made[i] {
			return fmt.Errorf("%s: %d of %d changes of %s are in the registry after %v", name, n, made[i], s.Name, limit)
		}
		waits = append(waits, s.Seen.Waits()...)
	}
	broken := b.sites[sites-1].Seen
	if n := len(broken.Waits()); breaks != nil && n > 0 {
		return fmt.Errorf("%s: %d changes of the broken Site are in its registry: it is not broken", name, n)
	}
	slices.Sort(waits)
	r.Add("p50", name, "ms", milliseconds(waits[len(waits)/2]))
	r.Add("p99", name, "ms", milliseconds(waits[len(waits)*99/100]))
	r.Add("longest", name, "ms", milliseconds(waits[len(waits)-1]))
	r.Add("operator", name, "cores", used.Cores)
	b.toStore.Mend()
	b.toNATS.Mend()
	control.Within(ctx, limit, func() bool { return broken.Programmed() == instruments })
	if n := broken.Programmed(); n != instruments {
		return fmt.Errorf("%s: %d of %d Instruments of the Site that was broken are Programmed after %v", name, n, instruments, limit)
	}
	return nil
}

// change changes Instruments for the length of a phase, and counts the changes of each Site.
func (b *bench) change(ctx context.Context, made []int, phase time.Duration) error {
	for begin, i := time.Now(), 0; time.Since(begin) < phase; i++ {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * pace)))
		b.changes++
		if err := b.sites[i%sites].ChangeOne(ctx, i/sites%instruments, b.changes); err != nil {
			return err
		}
		made[i%sites]++
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
