// SPDX-License-Identifier: Apache-2.0

// Command ingest-memory measures what is resident with 1,000 connections of 1 MB and with 10,000 idle ones, beside the study's receiver and a null sink.
package main

import (
	"fmt"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/testenv"
)

const (
	mib = "MiB"

	full, fullSize = 1000, 1_000_000
	idle           = 10_000
	// holdTime is long enough to look at a process while all are there.
	holdTime = 2 * time.Second

	// podLimit is the memory limit of the pod whose budget and heap limit the
	// gateway gets: half, and 0.8 of it.
	podLimit = 256 << 20
)

var rounds = report.Rounds(5)

const (
	fullCase = "1,000 connections x 1 MB"
	idleCase = "10,000 idle connections"
)

func main() { lab.Run(run, receiver.Main, load.Main) }

func run(l *lab.Lab) error {
	r := report.New("ingest-memory", rounds)
	backends, generator := receiver.StartBackends(l), load.Start(l, nil)
	site := func() *receiver.Process {
		return receiver.StartSite(l, backends, receiver.Options{MemoryBudget: podLimit / 2, HeapLimit: podLimit * 8 / 10})
	}
	unlimited := func() *receiver.Process { return receiver.StartSite(l, backends, receiver.Options{}) }
	alone := func(kind receiver.Kind) func() *receiver.Process {
		return func() *receiver.Process {
			return receiver.Start(l, receiver.Options{Kind: kind, Port: testenv.FreePort(l), Dir: l.TempDir()})
		}
	}
	held := load.Order{Senders: full, Size: fullSize, Hold: true, Duration: holdTime}
	silent := load.Order{Senders: idle, Hold: true, Duration: holdTime}
	for range r.Each() {
		for _, m := range []struct {
			name   string
			kind   receiver.Kind
			start  func() *receiver.Process
			order  load.Order
			answer load.Answer
		}{
			{fullCase, receiver.Site, site, held, load.Receipt},
			{fullCase, receiver.Hash, alone(receiver.Hash), held, load.Receipt},
			{fullCase, receiver.Static, alone(receiver.Static), held, load.Word},
			{idleCase, receiver.Gateway, alone(receiver.Gateway), silent, ""},
			{idleCase, receiver.Site, unlimited, silent, ""},
			{idleCase, receiver.Hash, alone(receiver.Hash), silent, ""},
		} {
			p := m.start()
			m.order.Address, m.order.Answer = p.Address, m.answer
			peak, open, err := measure(generator, p, m.order)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", m.kind, m.name, err)
			}
			if open < m.order.Senders {
				return fmt.Errorf("%s, %s: only %d connections were accepted", m.kind, m.name, open)
			}
			r.Add(m.name, string(m.kind), mib, peak)
			r.Add(m.name, string(m.kind)+" open", "files", float64(open))
		}
	}
	conclude(r)
	return r.Finish()
}

// measure returns the most memory, in MiB, that a process had while an order was
// carried out, and how many files and sockets it had open, and stops it.
func measure(g *load.Generator, p *receiver.Process, o load.Order) (peak float64, open int, err error) {
	defer p.Stop()
	o.Process = p.PID()
	out, err := g.Send(o)
	if err != nil {
		return 0, 0, err
	}
	peak, err = p.PeakMiB()
	return peak, out.Open, err
}

func conclude(r *report.Report) {
	r.Note("The most that was resident (VmHWM) in a process that was started for it. All objects but their last bytes arrive before the first one ends.")
	r.Note("%q has the budget and heap limit of a pod of %d MiB, with MinIO and JetStream behind it; %q may take 20,000 connections and stores nowhere.",
		receiver.Site, podLimit>>20, receiver.Gateway)
	r.Note("Of idle connections the gateway accepts one for each 96 KiB of its pod's memory limit, 16,384 without a limit (as here, with a budget of 256 MiB);")
	r.Note("the others wait in the kernel. Open: files and sockets that the process had open then.")
	r.Compare("gateway/static-8MB", []report.Pair{{Case: fullCase, Candidate: string(receiver.Site), OfCase: fullCase, OfCandidate: string(receiver.Static)}}, "", 0)
	r.Bound("MiB-resident-1000x1MB", r.Values(fullCase, string(receiver.Site)), "<=", 256)
	r.Bound("MiB-resident-10000-idle", r.Values(idleCase, string(receiver.Site)), "<=", 200)
}
