// SPDX-License-Identifier: Apache-2.0

// Command control-plane measures the operator beside a real API server: how soon changes of 1,000 and of 10,000 Instruments are in the registry, and what that costs.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/substorm/substorm/bench/internal/control"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/report"
)

const (
	instrumentsVariable = "SUBSTORM_BENCH_CONTROL_INSTRUMENTS"
	timeVariable        = "SUBSTORM_BENCH_CONTROL_TIME"
	limitVariable       = "SUBSTORM_BENCH_CONTROL_LIMIT"
)

func main() { lab.Run(run) }

// tenth is the smaller Site beside a Site: it has a tenth of everything.
func tenth(s control.Size) control.Size {
	return control.Size{Instruments: s.Instruments / 10, Gateways: s.Gateways / 10, Feeds: s.Feeds / 10, Consumers: s.Consumers / 10}
}

// times are how long calm and changes are measured, and how long anything is waited for.
type times struct{ phase, limit time.Duration }

func run(l *lab.Lab) error {
	instruments, err := lab.Number(instrumentsVariable, 10000, 400)
	if err != nil {
		return err
	}
	t := times{}
	if t.phase, err = lab.Duration(timeVariable, time.Minute); err != nil {
		return err
	}
	if t.limit, err = lab.Duration(limitVariable, 5*time.Minute); err != nil {
		return err
	}
	large := control.Size{Instruments: instruments, Gateways: max(10, instruments/250), Feeds: max(10, instruments/50), Consumers: max(10, instruments/20)}
	backends := control.Start(l)
	r := report.New("control-plane", 1)
	var all []measured
	for i, s := range []control.Size{tenth(large), large} {
		fmt.Fprintf(os.Stderr, "%d Instruments in %d pools, %d Feeds, %d FeedConsumers\n", s.Instruments, s.Gateways, s.Feeds, s.Consumers)
		m, err := measure(context.Background(), l, backends, []string{"small", "large"}[i], s, t)
		if err != nil {
			return err
		}
		all = append(all, m)
		m.add(r, strconv.Itoa(s.Instruments))
	}
	goals(r, all[0], all[1])
	return r.Finish()
}

// measured is what one size took. A step that did not end within the limit has the limit.
type measured struct {
	installed, siteWide, restarted time.Duration
	calm, changing                 control.Usage
	p50, p99                       time.Duration
	changes, late                  int
	// writesPerChange are those beyond the ones of calm.
	writesPerChange float64
	siteWideTime    time.Duration
	restartTime     time.Duration
	peakMiB         float64
}

func (m measured) add(r *report.Report, candidate string) {
	add := func(name string, value float64) { r.Add(name, candidate, "Instruments", value) }
	add("installed: all Programmed after, s", m.installed.Seconds())
	add("calm: processor, cores", m.calm.Cores)
	add("calm: API writes, 1/s", m.calm.Writes)
	add("changes: to the registry, p50, ms", milliseconds(m.p50))
	add("changes: to the registry, p99, ms", milliseconds(m.p99))
	add("changes: processor, cores", m.changing.Cores)
	add("changes: API writes for each, beyond 5/s", m.writesPerChange)
	add("legalHold of the Site: all entries after, s", m.siteWide.Seconds())
	add("legalHold of the Site: processor time, s", m.siteWideTime.Seconds())
	add("restart: all judged and what changed meanwhile Programmed after, s", m.restarted.Seconds())
	add("restart: processor time, s", m.restartTime.Seconds())
	add("memory, peak, MiB", m.peakMiB)
	r.Note("%s Instruments: %d changes, of which %d were not in the registry when the time was up", candidate, m.changes, m.late)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func goals(r *report.Report, small, large measured) {
	bound := func(name string, value, goal float64) { r.Bound("control-plane-"+name, []float64{value}, "<=", goal) }
	bound("change-p50-ms", milliseconds(large.p50), 50)
	bound("change-p99-ms", milliseconds(large.p99), 1000)
	bound("site-wide-s", large.siteWide.Seconds(), 30)
	bound("restart-s", large.restarted.Seconds(), 30)
	bound("writes-per-change", large.writesPerChange, 2)
	bound("memory-mib", large.peakMiB, 300)
	bound("calm-cores", large.calm.Cores, 0.3)
	for _, c := range []struct {
		name         string
		small, large float64
	}{
		{"calm", small.calm.Cores, large.calm.Cores}, {"changes", small.changing.Cores, large.changing.Cores},
		{"site-wide", small.siteWideTime.Seconds(), large.siteWideTime.Seconds()}, {"restart", small.restartTime.Seconds(), large.restartTime.Seconds()},
	} {
		bound("growth-"+c.name, c.large/c.small, 12)
	}
}
