// SPDX-License-Identifier: Apache-2.0

// Command start measures how long a whole Site in one process takes from the start of the binary to the first receipt, with an archive of a million objects and with an empty one.
//
// The archive is prepared through the product itself: a running Site receives -objects objects of 256 B, each with its receipt, from 64 connections with 32 in
// flight (LengthPrefixed), which share packs as small objects do by default, until the manifests list all of them. So all were received within the
// last 72 hours, for which the stream keeps their notices, and today: the archive of a Site that was filled over years has as many
// objects, shorter streams, and more days. The empty archive has the objects of the starts only.
//
// In each round each Site is started after SIGTERM, and again after SIGKILL, while nothing of the other runs. Files that were read before are in the page cache. The first
// object is sent every 5 ms until it has its receipt; served means the answer of the feed server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/standalone"
	"github.com/substorm/substorm/internal/wire"
)

var (
	objects = flag.Int("objects", 1_000_000, "how many objects the archive has at least")
	rounds  = flag.Int("rounds", report.Rounds(5), "how often each start is measured")
)

const (
	size       = 256
	instrument = "small"
	// window of one order to the senders.
	window = 5 * time.Second
	// listEvery is how often the archive's list is counted, and listWithin how long it may take to be complete.
	listEvery, listWithin = 10 * time.Second, 30 * time.Minute
	// between is how long a process runs before it ends.
	between = 2 * time.Second
	// maxSeconds is the goal.
	maxSeconds = 1
)

// The cases and candidates of the report.
const (
	full, empty      = "archive with objects", "empty archive"
	receiptAfterTerm = "after SIGTERM: to the first receipt"
	servedAfterTerm  = "after SIGTERM: served"
	receiptAfterKill = "after SIGKILL: to the first receipt"
	servedAfterKill  = "after SIGKILL: served"
	seconds          = "s"
)

func main() { lab.Run(run, load.Main) }

func run(l *lab.Lab) error {
	flag.Parse()
	if *objects < 1 || *rounds < 1 {
		return errors.New("-objects and -rounds are at least 1")
	}
	r := report.New("start", *rounds)
	sites := map[string]*standalone.Site{}
	for _, name := range []string{full, empty} {
		sites[name] = standalone.New(l, standalone.Options{Instruments: []standalone.Instrument{{Name: instrument, Framing: wire.FramingLengthPrefixed}}})
		if err := sites[name].Start(); err != nil {
			return err
		}
		if name == full {
			if err := fill(l, r, sites[name]); err != nil {
				return err
			}
		}
		sites[name].Stop()
	}
	for round := range r.Each() {
		for i := range 2 {
			name := []string{full, empty}[(round+i)%2]
			if err := startTwice(r, name, sites[name]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	conclude(r)
	return r.Finish()
}

// fill has a Site receive objects, and waits until all are listed.
func fill(l *lab.Lab, r *report.Report, site *standalone.Site) error {
	generator, begin, sent := load.Start(l, nil), time.Now(), 0
	for sent < *objects {
		out, err := generator.Send(load.Small(site.Address(instrument), size, window))
		if err != nil {
			return fmt.Errorf("fill the archive: %w", err)
		}
		sent += int(out.Objects)
		l.Logf("%d objects are in the archive", sent)
	}
	received := time.Since(begin)
	archive, err := standalone.OpenArchive(site.DataDir)
	if err != nil {
		return err
	}
	for listed := 0; listed < sent; {
		if time.Since(begin) > received+listWithin {
			return fmt.Errorf("of %d objects %d are listed after %v", sent, listed, listWithin)
		}
		time.Sleep(listEvery)
		listed = 0
		if err := archive.Read(context.Background(), instrument, false, func(wire.Record) { listed++ }); err != nil {
			return err
		}
		l.Logf("%d objects are listed", listed)
	}
	r.Note("The archive has %d objects of %d B, received in %.0f s and listed after %.0f s.", sent, size, received.Seconds(), time.Since(begin).Seconds())
	return nil
}

// startTwice starts a Site that was stopped, kills it, starts it again and stops it.
func startTwice(r *report.Report, name string, site *standalone.Site) error {
	for _, c := range []struct {
		receipt, served string
		end             func()
	}{{receiptAfterTerm, servedAfterTerm, site.Kill}, {receiptAfterKill, servedAfterKill, site.Stop}} {
		started, err := site.StartAndSend()
		if err != nil {
			return err
		}
		r.Add(c.receipt, name, seconds, started.Receipt.Seconds())
		r.Add(c.served, name, seconds, started.Served.Seconds())
		time.Sleep(between)
		c.end()
	}
	return nil
}

func conclude(r *report.Report) {
	for _, of := range []struct{ ratio, name string }{{"full/empty", receiptAfterTerm}, {"full/empty-after-kill", receiptAfterKill}} {
		r.Compare(of.ratio, []report.Pair{{Case: of.name, Candidate: full, OfCase: of.name, OfCandidate: empty}}, "", 0)
	}
	r.Bound("start-s", r.Values(receiptAfterTerm, full), "<=", maxSeconds)
	r.Bound("start-after-kill-s", r.Values(receiptAfterKill, full), "<=", maxSeconds)
}
