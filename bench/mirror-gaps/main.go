// SPDX-License-Identifier: Apache-2.0

// Command mirror-gaps measures what bounds copies over a long way: sources and receivers that pause, and other flows, to memory and to the disk, with and without TLS.
//
// It is the e-VLBI study's model: bursts at a constant rate and idle times, both distributed exponentially with a mean of 500 ms. Sizes of objects
// are those of chasqui: Gaussian, with a standard deviation of a fifth of the mean. A process at the far end of a link that delays packets
// (internal/testenv.Link) fetches parts by the client of mirrors (mirror-jobs/https), and by the standard library's, which does not read ahead; a
// server in this process has the objects in memory. Results are compared with the same flow without pauses. Each copy to the disk is synced.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/wan"
	"github.com/substorm/substorm/internal/testenv"
)

var (
	size        = flag.Int64("size", 40_000_000, "mean size of an object, in bytes")
	objects     = flag.Int("objects", 20, "how many objects are copied")
	roundTrip   = flag.Duration("round-trip", 110*time.Millisecond, "round trip of the link; the e-VLBI study has 3.8ms")
	limit       = flag.Int64("cap", 400_000_000, "bits a second of the link")
	connections = flag.Int("connections", 16, "how many connections")
	mean        = flag.Duration("mean", 500*time.Millisecond, "mean of bursts and of pauses")
	rounds      = flag.Int("rounds", report.Rounds(5), "how often each is measured")
)

// The candidates.
const (
	steady      = "no pauses"
	source      = "source pauses"
	one         = "source pauses, one connection"
	oneSteady   = "no pauses, one connection"
	slow        = "receiver pauses"
	slowLibrary = "receiver pauses, net/http"
	beside      = "beside iperf3"
	unit        = "MB/s"
)

func main() {
	lab.RunIsolated(run, wan.Main)
}

func run(l *lab.Lab) error {
	flag.Parse()
	if *size < 1 || *objects < 1 || *connections < 1 || *rounds < 1 || *limit < 1 {
		return errors.New("-size, -objects, -connections, -cap and -rounds are at least 1")
	}
	r := report.New("mirror-gaps", *rounds)
	r.Note("%d objects of %d bytes (Gaussian, sigma 20%%), %d connections behind %v at %d Mb/s; bursts and pauses of %v.", *objects, *size, *connections, *roundTrip, *limit/1_000_000, *mean)
	b := &bench{report: r, disk: filepath.Join(l.TempDir(), "disk")}
	b.objects, b.from = wan.Gaussian(*objects, *size)
	for range r.Each() {
		for _, secure := range []bool{false, true} {
			if err := l.Part(func() error { return b.measure(l, secure) }); err != nil {
				return err
			}
		}
	}
	b.conclude()
	return r.Finish()
}

// bench has what is copied.
type bench struct {
	report  *report.Report
	objects []wan.Object
	from    []byte
	disk    string
	cases   []string
}

// measure copies over one link, with TLS or without.
func (b *bench) measure(l *lab.Lab, secure bool) error {
	link := testenv.NewLink(l, testenv.LinkOptions{RoundTrip: *roundTrip, Rate: *limit / 8})
	// A source's burst has half of the link: several of them together, half of the time idle, have more than the link.
	pauses := wan.Pauses{Mean: *mean, BytesPerSecond: *limit / 8 / 2}
	from := map[bool]*wan.Server{}
	for _, paused := range []bool{false, true} {
		of := wan.Pauses{}
		if paused {
			of = pauses
		}
		var err error
		if from[paused], err = wan.Serve(l, wan.Objects(b.objects, b.from, of), secure); err != nil {
			return err
		}
	}
	receiver := wan.Pauses{Mean: *mean}
	for _, to := range []string{"", b.disk} {
		name := b.caseOf(to, secure)
		for _, c := range []struct {
			candidate string
			client    wan.Client
			source    bool
			requests  int
			receiver  wan.Pauses
		}{
			{steady, wan.Ours, false, *connections, wan.Pauses{}},
			{source, wan.Ours, true, *connections, wan.Pauses{}},
			{slow, wan.Ours, false, *connections, receiver},
			{slowLibrary, wan.HTTP1, false, *connections, receiver},
			{oneSteady, wan.Ours, false, 1, wan.Pauses{}},
			{one, wan.Ours, true, 1, wan.Pauses{}},
		} {
			o := wan.Order{Client: c.client, URL: from[c.source].URL(link.Near()), CA: from[c.source].CA, Requests: c.requests, Objects: b.objects, Folder: to, Receiver: c.receiver}
			if c.requests == 1 {
				o.Objects = b.objects[:max(1, len(b.objects)/4)]
			}
			if err := b.fetch(link, name, c.candidate, o); err != nil {
				return err
			}
		}
		if err := b.beside(l, link, name, wan.Order{Client: wan.Ours, URL: from[false].URL(link.Near()), CA: from[false].CA, Requests: *connections, Objects: b.objects, Folder: to}); err != nil {
			return err
		}
	}
	return nil
}

// caseOf names a case, and notes it.
func (b *bench) caseOf(to string, secure bool) string {
	name := "to memory"
	if to != "" {
		name = "to the disk"
	}
	if secure {
		name += ", TLS"
	}
	for _, is := range b.cases {
		if is == name {
			return name
		}
	}
	b.cases = append(b.cases, name)
	return name
}

func (b *bench) fetch(link *testenv.Link, name, candidate string, o wan.Order) error {
	rate, err := wan.Fetch(link, o)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", name, candidate, err)
	}
	b.report.Add(name, candidate, unit, rate/1e6)
	return os.RemoveAll(b.disk)
}

// beside copies while iperf3 fills the link with as many flows as ours has.
func (b *bench) beside(l *lab.Lab, link *testenv.Link, name string, o wan.Order) error {
	port, stop, err := wan.Iperf3(l)
	if err != nil {
		return err
	}
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range testenv.Attempts() { // until it listens; then until it is ended
			_ = link.Far(ctx, "iperf3", "-c", link.Near(), "-p", port, "-R", "-P", strconv.Itoa(*connections), "-t", "3600").Run()
			if ctx.Err() != nil {
				return
			}
		}
	}()
	defer func() { cancel(); <-ended }()
	before := link.Bytes()
	for range testenv.Attempts() { // until it has begun
		if link.Bytes()-before > *limit/8 {
			return b.fetch(link, name, beside, o)
		}
	}
	return errors.New("iperf3 sends nothing over the link")
}

// conclude compares with the flow without pauses.
func (b *bench) conclude() {
	pairs := func(candidate, of string) (all []report.Pair) {
		for _, name := range b.cases {
			all = append(all, report.Pair{Case: name, Candidate: candidate, OfCase: name, OfCandidate: of})
		}
		return all
	}
	b.report.Compare("gaps-source", pairs(source, steady), ">=", 0.9)
	b.report.Compare("gaps-receiver", pairs(slow, steady), ">=", 0.9)
	b.report.Compare("gaps-receiver-of-net-http", pairs(slow, slowLibrary), ">=", 1)
	b.report.Compare("gaps-source-one-connection", pairs(one, oneSteady), "", 0)
	// Half of the link would be the fair share beside as many flows; those of iperf3 have grown before ours begin.
	b.report.Compare("gaps-beside-iperf3", pairs(beside, steady), "", 0)
}
