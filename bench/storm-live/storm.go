// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/bench/internal/aurora"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/workload"
)

// forget is how long nothing is asked for before a policy begins: metrics-server says what was used up to 30 s before.
const forget = 40 * time.Second

// result is what came of a policy's storm.
type result struct {
	policy policy
	// crowd is when it comes, and began when the storm did.
	began, crowd time.Time
	history      *history
	answered     answered
	sent         sent
	// busy cores of the machine while the crowd is there, of everything that runs on it.
	busy float64
}

// load has both workers carry out the same parts from a time on.
func (b *bench) load(p policy, begin time.Time, all []part, seed uint64) (answered, sent, error) {
	var out answered
	var back sent
	var failures [2]error
	var both sync.WaitGroup
	both.Go(func() {
		day := b.day
		day.Speed, day.Seed = b.speed, seed
		out, failures[0] = b.readers.Do(asking{Pods: p.feedServers(b.cluster), Begin: begin, Day: day, Parts: all})
		failures[0] = errors.Join(failures[0], told(out.Error))
	})
	both.Go(func() {
		back, failures[1] = b.senders.Do(sending{Pods: p.gateways(b.cluster), Authority: b.certificate, Begin: begin, Rate: b.objects, Parts: all, Seed: seed})
		failures[1] = errors.Join(failures[1], told(back.Error))
	})
	both.Wait()
	held := b.receipts[p.camera]
	if held == nil {
		held = map[wire.Digest]bool{}
		b.receipts[p.camera] = held
	}
	for _, digest := range back.Receipts {
		held[digest] = true
	}
	return out, back, errors.Join(failures[:]...)
}

func told(problem string) error {
	if problem == "" {
		return nil
	}
	return errors.New(problem)
}

// play gives a policy its storm.
func (b *bench) play(ctx context.Context, p policy, seed uint64) (result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, each := range policies {
		if err := b.reset(ctx, each); err != nil {
			return result{}, err
		}
	}
	time.Sleep(forget)
	if err := b.enable(ctx, p); err != nil {
		return result{}, err
	}
	r := result{policy: p, began: time.Now().Add(headStart).Truncate(time.Second), history: b.watch(ctx, p)}
	if p == policies[0] {
		if err := b.foretell(ctx, r.began); err != nil {
			return r, err
		}
	}
	go b.archive.KeepLive(ctx)
	all := parts(b.storm)
	r.crowd = r.began.Add(all[0].For)
	go b.describe(ctx, r, all)
	busy := make(chan float64, 1)
	go func() { busy <- busyCores(r.crowd, all[1].For) }()
	var err error
	if r.answered, r.sent, err = b.load(p, r.began, all, seed); err != nil {
		return r, err
	}
	r.busy = <-busy
	cancel()
	return r, b.reset(context.WithoutCancel(ctx), p)
}

// describe says how a storm goes, until ctx ends.
func (b *bench) describe(ctx context.Context, r result, all []part) {
	for tick := time.NewTicker(tellEvery); ; {
		select {
		case <-tick.C:
			since := time.Since(r.began)
			name, until := after, time.Duration(0)
			for _, p := range all {
				if until += p.For; since < until {
					name = p.Name
					break
				}
			}
			b.line("%s, %3.0f s of %.0f, %s: %s", r.policy.name, since.Seconds(), b.storm.Seconds(), name, r.history)
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
}

const (
	warming, longestMeasuring = 8 * time.Second, 20 * time.Second
	// The load with which the search for half of a pod's load begins, and how often that load is looked for.
	firstSpeed, firstObjects = 5, 20
	searches                 = 3
)

// calibrate finds the load that takes half of a pod's limit. A pod's use grows in proportion to the load, beyond what it uses without any.
func (b *bench) calibrate(ctx context.Context) error {
	p, measuring := policies[0], min(longestMeasuring, b.storm/6)
	idle, err := b.using(ctx, p, func() error { time.Sleep(measuring); return nil })
	if err != nil {
		return err
	}
	b.speed, b.objects = firstSpeed, firstObjects
	for n := range searches {
		begin := time.Now().Add(headStart).Truncate(time.Second)
		ended := make(chan error, 1)
		go func() {
			_, _, err := b.load(p, begin, []part{{calm, warming + measuring, 1, 1}}, uint64(1_000_000+n))
			ended <- err
		}()
		time.Sleep(time.Until(begin.Add(warming)))
		use, err := b.using(ctx, p, func() error { return <-ended })
		if err != nil {
			return err
		}
		b.line("at %.0f requests and %.0f objects a second a feed server uses %.0f, a gateway %.0f thousandths of a core", float64(b.speed)*aurora.PerSecond, b.objects,
			1000*use[0], 1000*use[1])
		const half = podLimit / 2 / 1000.
		b.speed = max(1, int(float64(b.speed)*(half-idle[0])/max(use[0]-idle[0], 1e-3)+0.5))
		b.objects = max(1, b.objects*(half-idle[1])/max(use[1]-idle[1], 1e-3))
	}
	b.line("half of a pod's limit are %.0f requests and %.0f objects a second", float64(b.speed)*aurora.PerSecond, b.objects)
	return nil
}

// using is how many cores a policy's first feed server and gateway use while something is done.
func (b *bench) using(ctx context.Context, p policy, do func() error) (cores [2]float64, err error) {
	before, err := b.used(ctx, p)
	if err != nil {
		return cores, err
	}
	begin := time.Now()
	if err := do(); err != nil {
		return cores, err
	}
	after, err := b.used(ctx, p)
	for i := range cores {
		cores[i] = (after[i] - before[i]) / time.Since(begin).Seconds()
	}
	return cores, err
}

// used is how many seconds of a processor they have used since they started.
func (b *bench) used(ctx context.Context, p policy) (seconds [2]float64, err error) {
	for i, program := range []struct {
		name string
		port int
	}{{workload.FeedServerProgram, feedMetrics}, {workload.GatewayProgram, gateMetrics}} {
		var list corev1.PodList
		if err := b.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{workload.LabelName: program.name, workload.LabelInstance: p.name}); err != nil {
			return seconds, err
		}
		if len(list.Items) != 1 {
			return seconds, fmt.Errorf("%s %s has %d pods, and not one", program.name, p.name, len(list.Items))
		}
		url := fmt.Sprintf("http://%s:%d/metrics", list.Items[0].Status.PodIP, program.port)
		value, found, err := process.Metric(url, "process_cpu_seconds_total")
		if err != nil || !found {
			return seconds, fmt.Errorf("%s has no process_cpu_seconds_total (%w)", url, err)
		}
		seconds[i] = value
	}
	return seconds, nil
}

// busyCores is how many of the machine's are busy for a while that begins later.
func busyCores(from time.Time, during time.Duration) float64 {
	time.Sleep(time.Until(from))
	before, begin := machineTime(), time.Now()
	time.Sleep(time.Until(from.Add(during)))
	return (machineTime() - before) / time.Since(begin).Seconds()
}

// machineTime is how many seconds all processors were busy (proc_stat(5)): all columns but those of being idle and of guests, which
// are in others already.
func machineTime() float64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		panic(err) // every Linux has it
	}
	first, _, _ := strings.Cut(string(text), "\n")
	ticks := 0.
	for i, field := range strings.Fields(first) {
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			panic(err) // the kernel writes numbers
		}
		ticks += n
	}
	return ticks / 100
}
