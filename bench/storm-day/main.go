// SPDX-License-Identifier: Apache-2.0

// Command storm-day replays the Aurora study's day, robots included, and then its storm: four times as many GETs by people, from eight times as many addresses.
package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/substorm/substorm/bench/internal/aurora"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// timeVariable is how long calm and storm take, each in each round; speedVariable
	// how many times as fast as the study's day it goes.
	timeVariable  = "SUBSTORM_BENCH_STORM_TIME"
	speedVariable = "SUBSTORM_BENCH_STORM_SPEED"
	// Days of images, and files for the second robot.
	days, bulk = 20, 40
	// The time that people may wait during a storm: 1.5 times as long, and so many milliseconds more.
	slower, slack = 1.5, 5.
)

var rounds = report.Rounds(3)

// The candidates.
const (
	calm  = "calm"
	storm = "storm"
)

func main() {
	process.Work(environment, replay)
	lab.Run(run)
}

func run(l *lab.Lab) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	during, err := lab.Duration(timeVariable, 2*time.Minute)
	if err != nil {
		return err
	}
	speed, err := lab.Number(speedVariable, 20, 1)
	if err != nil {
		return err
	}
	site := web.NewSite(l, web.Options{Instruments: []wire.InstrumentEntry{
		web.Camera(aurora.Live, 30*time.Second), web.Camera(aurora.Old, 30*time.Second), web.Camera(aurora.Films, time.Hour),
	}})
	archive := aurora.Archive{Days: days, Bulk: bulk, Put: func(ctx context.Context, o web.Object) error {
		_, err := site.Put(ctx, o)
		return err
	}}
	day := aurora.Day{Speed: speed, People: 1, Addresses: 1}
	if err := archive.Fill(ctx, &day); err != nil {
		return err
	}
	for _, path := range day.Last() {
		if err := site.Await(ctx, path); err != nil {
			return err
		}
	}
	go archive.KeepLive(ctx)
	b := &bench{
		report: report.New("storm-day", rounds), asker: process.StartWorker[order, answer](l, environment, web.ClientCores), server: site.Server.PID(),
		order: order{Base: "http://" + site.Server.Address(), During: during, Day: day},
	}
	if err := b.measure(); err != nil {
		return err
	}
	return b.report.Finish()
}

type bench struct {
	report *report.Report
	asker  *process.Worker[order, answer]
	order  order
	server int
}

func (b *bench) measure() error {
	warm := b.order
	warm.During = max(b.order.During/10, time.Second)
	if _, err := b.asker.Do(warm); err != nil {
		return err
	}
	var slower, failures []float64
	for round := range b.report.Each() {
		var people [2]float64
		for i, o := range []order{b.order, b.stormy()} {
			name := []string{calm, storm}[i]
			o.Day.Seed = uint64(round*2 + i)
			a, err := b.replay(name, o)
			if err != nil {
				return err
			}
			people[i] = a.People.P99
			failures = append(failures, float64(a.errors()))
		}
		slower = append(slower, (people[1]-slack)/people[0])
	}
	b.tell(slower, failures)
	return nil
}

func (b *bench) stormy() order {
	o := b.order
	o.Day.People, o.Day.Addresses = aurora.StormGets, aurora.StormAddresses
	return o
}

// replay replays a part of a day, and reports it.
func (b *bench) replay(name string, o order) (answer, error) {
	before, err := process.Time(b.server)
	if err != nil {
		return answer{}, err
	}
	a, err := b.asker.Do(o)
	if err != nil {
		return a, err
	}
	after, err := process.Time(b.server)
	if err != nil {
		return a, err
	}
	r := b.report
	for _, class := range []struct {
		name string
		seen outcome
	}{{"people", a.People}, {"robots", a.Robots}} {
		phase := name + ", " + class.name
		r.Add(phase, "p50", "ms", class.seen.P50)
		r.Add(phase, "p99", "ms", class.seen.P99)
		r.Add(phase, "requests", "/s", float64(class.seen.Requests)/o.During.Seconds())
		r.Add(phase, "bytes", "MB/s", float64(class.seen.Bytes)/o.During.Seconds()/1e6)
		r.Add(phase, "answered 429", "requests", float64(class.seen.Limited))
		r.Add(phase, "errors", "requests", float64(class.seen.failed()))
		for _, what := range slices.Sorted(maps.Keys(class.seen.Failed)) {
			r.Note("%s, %s: %d times %s.", name, class.name, class.seen.Failed[what], what)
		}
	}
	r.Add(name+", feed-server", "CPU", "% of a core", 100*(after-before).Seconds()/o.During.Seconds())
	r.Add(name+", who asks", "late p99", "ms", a.LateP99)
	return a, nil
}

func (b *bench) tell(times, failures []float64) {
	r := b.report
	r.Note("%d times as fast as the study's day, each client as often as then and %d of each, %v of calm and of storm.", b.order.Day.Speed, b.order.Day.Speed, b.order.During)
	r.Note("feed-server has one core, who asks the other.")
	r.Note("A time is from when a request was due until its last byte. Who asks is late where its own processor is too slow.")
	r.Bound("errors", []float64{slices.Max(failures)}, "<=", 0)
	r.Bound("people,(p99-of-storm-less-5-ms)/p99-of-calm", times, "<=", slower)
}
