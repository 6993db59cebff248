// SPDX-License-Identifier: Apache-2.0

// Command footprint measures the memory and processor time of a whole Site in one process that receives 50 instruments of the UARC mix
// for ten minutes.
//
// Each instrument has a port and a connection of its own (TCP, LengthPrefixed), and sends objects of one size of the mix: 250 B every
// three minutes, 1,500 B every minute, 5,300 B every 5 s or 20,000 B every minute, each fourth instrument the same, at random instants
// (Poisson) of that rate. Every receipt is compared with the digest of what was sent. After -warm the peak of resident memory is reset
// (proc_pid_clear_refs(5)), and so is processor time; each second it reads how much is resident in no file, and how much of files: the
// program itself.
//
// Before that it counts, with strace, what a Site of as many instruments writes to the disk: synced writes a second without traffic and
// with a datagram of 100 B a second of each instrument, and the bytes written for each that was sent, by what is written. -duration 0
// leaves out memory and processor time, -datagrams 0 the writes.
//
// ringserver is no peer here: no package registry that this project uses has it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/standalone"
	"github.com/substorm/substorm/internal/wire"
)

var (
	instruments = flag.Int("instruments", 50, "how many instruments send")
	duration    = flag.Duration("duration", 10*time.Minute, "how long memory and processor time are measured (0: not)")
	warm        = flag.Duration("warm", time.Minute, "how long they send before")
)

// The goals: resident bytes in megabytes of 10^6, and the share of a core.
const maxMB, maxShare = 100, 0.05

// slack is how long the load lasts beyond the measurement, which begins a little after it.
const slack = 10 * time.Second

// profileTime is how long processor time is profiled, after what is measured, where SUBSTORM_BENCH_PROFILES asks for it.
const profileTime = 30 * time.Second

const (
	candidate = "substorm up"
	// perMiB is megabytes.
	perMiB = float64(1<<20) / 1e6
)

func main() { lab.Run(run, load.Main) }

func run(l *lab.Lab) error {
	flag.Parse()
	if *instruments < 1 || *duration < 0 || *warm < 0 || *idle < 0 || *datagrams < 0 || *payload < 1 {
		return errors.New("-instruments and -payload must be greater than 0, and no time may be less than 0")
	}
	r := report.New("footprint", 1)
	if *datagrams > 0 {
		if err := measureWrites(l, r); err != nil {
			return err
		}
	}
	if *duration > 0 {
		if err := measureMemory(l, r); err != nil {
			return err
		}
	}
	return r.Finish()
}

func measureMemory(l *lab.Lab, r *report.Report) error {
	var all []standalone.Instrument
	for i := range *instruments {
		all = append(all, standalone.Instrument{Name: name(i), Framing: wire.FramingLengthPrefixed})
	}
	generator := load.Start(l, nil)
	site := standalone.New(l, standalone.Options{Instruments: all})
	started, err := site.StartAndSend()
	if err != nil {
		return err
	}
	r.Note("The first receipt came %.2f s after the start, with the manifests new.", started.Receipt.Seconds())
	sent := send(generator, site)
	f := &footprint{report: r, site: site}
	if err := f.measure(sent); err != nil {
		return err
	}
	out := <-sent
	if out.err != nil {
		return out.err
	}
	r.Note("%d instruments, %d objects with receipts in %v.", *instruments, out.Objects, *warm+*duration+slack)
	return nil
}

func name(i int) string { return fmt.Sprintf("instrument-%02d", i) }

type outcome struct {
	load.Outcome
	err error
}

// send has all instruments send until the end.
func send(generator *load.Generator, site *standalone.Site) <-chan outcome {
	var orders []load.Order
	for i := range *instruments {
		s := load.UARC[i%len(load.UARC)]
		o := load.Order{
			Address: site.Address(name(i)), Answer: load.Receipt, Size: s.Size, Senders: 1, InFlight: 32,
			Rate: 1 / s.Interval.Seconds(), Seed: uint64(i), Duration: *warm + *duration + slack,
		}
		if site.Profiled() {
			o.Duration += profileTime
		}
		orders = append(orders, o)
	}
	sent := make(chan outcome, 1)
	go func() {
		out, err := generator.Send(load.Order{All: orders})
		sent <- outcome{out, err}
	}()
	return sent
}

type footprint struct {
	report *report.Report
	site   *standalone.Site
}

// measure takes figures once a second, while the load lasts.
func (f *footprint) measure(sent <-chan outcome) error {
	pid := f.site.PID()
	time.Sleep(*warm)
	if err := process.ForgetPeak(pid); err != nil {
		return err
	}
	timeBefore, err := process.Time(pid)
	if err != nil {
		return err
	}
	begin := time.Now()
	var anonymous, file []float64
	for time.Since(begin) < *duration {
		select {
		case out := <-sent:
			return fmt.Errorf("the load ended before the measurement: %w", out.err)
		case <-time.After(time.Second):
		}
		now, err := process.ResidentNow(pid)
		if err != nil {
			return err
		}
		anonymous, file = append(anonymous, now.Anonymous*perMiB), append(file, now.File*perMiB)
	}
	timeAfter, err := process.Time(pid)
	if err != nil {
		return err
	}
	share := (timeAfter - timeBefore).Seconds() / time.Since(begin).Seconds()
	peak, err := process.PeakMiB(pid)
	if err != nil {
		return err
	}
	return f.note(peak*perMiB, share, report.Median(anonymous), report.Median(file))
}

// note reports in megabytes, and keeps profiles.
func (f *footprint) note(peak, share, anonymous, file float64) error {
	f.report.Add("resident at most", candidate, "MB", peak)
	f.report.Add("of no file, median", candidate, "MB", anonymous)
	f.report.Add("of files, median", candidate, "MB", file)
	f.report.Add("processor", candidate, "% of a core", 100*share)
	f.report.Bound("resident-MB", []float64{peak}, "<=", maxMB)
	f.report.Bound("core-share", []float64{share}, "<=", maxShare)
	return errors.Join(f.site.KeepProfile("heap", "footprint-heap"),
		f.site.KeepProfile(fmt.Sprintf("profile?seconds=%.0f", profileTime.Seconds()), "footprint-cpu"))
}
