// SPDX-License-Identifier: Apache-2.0

// Command ingest-tcp measures objects over TCP on the RTEMP study's grid, beside the study's receivers, ncat, a hashing null sink and the store alone.
package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/bench/internal/report"
)

const (
	// window and storeWindow are how long one measurement lasts: all of them
	// together stay under six minutes on two cores.
	window      = 150 * time.Millisecond
	storeWindow = 800 * time.Millisecond
	megabytes   = "MB/s"

	small, mega, large = 32 << 10, 1 << 20, 8 << 20

	ncat  receiver.Kind = "ncat to a file"
	alone receiver.Kind = "store alone"
)

var rounds = report.Rounds(5)

// The grid of table 1 of Liu, Picard, Williamson (Sensors, 2017), as far as two
// cores go.
var (
	senders = []int{1, 2, 3}
	cores   = []int{1, 2}
	sizes   = doubled(small, large)
)

func doubled(from, to int) []int {
	var all []int
	for n := from; n <= to; n *= 2 {
		all = append(all, n)
	}
	return all
}

func main() { lab.Run(run, receiver.Main, load.Main) }

func run(l *lab.Lab) error {
	r := report.New("ingest-tcp", rounds)
	b := &bench{lab: l, report: r, generators: map[int]*load.Generator{}}
	b.startReceivers()
	for round := range rounds {
		if err := b.grid(round); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "round %d of %d of the grid is done\n", round+1, rounds)
	}
	if err := b.oldOnce(); err != nil {
		return err
	}
	b.stopReceivers()
	b.startSite()
	for round := range rounds {
		if err := b.store(round); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "round %d of %d with the store is done\n", round+1, rounds)
	}
	b.conclude()
	return r.Finish()
}

// candidate is something to send to.
type candidate struct {
	name   receiver.Kind
	answer load.Answer
	stop   func()
	// address by cores.
	address map[int]string
	// tidy is called after each measurement.
	tidy func()
}

type bench struct {
	lab    *lab.Lab
	report *report.Report
	// generators by the receiver's cores: where it has one, they take the others.
	generators map[int]*load.Generator
	candidates []candidate
	old        candidate
	site       *site
}

// receiverCPUs are those of a receiver that has so many cores; nil is all.
func receiverCPUs(n int) []int {
	if n >= runtime.NumCPU() {
		return nil
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func (b *bench) startReceivers() {
	for _, n := range cores {
		var others []int
		if own := receiverCPUs(n); own != nil {
			for c := n; c < runtime.NumCPU(); c++ {
				others = append(others, c)
			}
		}
		b.generators[n] = load.Start(b.lab, others)
	}
	b.candidates = []candidate{
		b.start(receiver.Gateway, load.Receipt),
		b.start(receiver.Hash, load.Receipt),
		b.start(receiver.Static, load.Word),
	}
	b.old = b.start(receiver.Old, load.Word)
	c, err := startNcat(b.lab)
	if err != nil {
		b.report.Note("ncat is absent: %v", err)
		return
	}
	b.candidates = append(b.candidates, c)
}

func (b *bench) stopReceivers() {
	for _, c := range append(slices.Clone(b.candidates), b.old) {
		c.stop()
	}
}

// measure adds a figure of a receiver that has n cores.
func (b *bench) measure(n int, c candidate, name string, o load.Order) error {
	out, err := b.generators[n].Send(o)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", c.name, name, err)
	}
	if c.tidy != nil {
		c.tidy()
	}
	b.report.Add(name, string(c.name), megabytes, out.BytesPerSecond/1e6)
	return nil
}

// grid measures everything once, each time beginning with another candidate.
func (b *bench) grid(round int) error {
	for _, size := range sizes {
		for _, n := range cores {
			for _, s := range senders {
				for i := range b.candidates {
					c := b.candidates[(i+round)%len(b.candidates)]
					o := load.Order{Address: c.address[n], Answer: c.answer, Size: size, Senders: s, Duration: window}
					if err := b.measure(n, c, cell(size, s, n), o); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}
