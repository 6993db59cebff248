// SPDX-License-Identifier: Apache-2.0

// Command power-cut cuts the power of a whole Site in one process under load, again and again: which receipted objects are lost, and how
// long a start takes after it.
//
// All data of `substorm up` lies on a file system in a file (ext4 over a loop device). While 8 connections with 16 objects of 1.5 KB in
// flight, which share packs, and two senders of 100 KB, one connection an object, send as fast as receipts come, the process is killed
// (SIGKILL) at a random moment 0.2 to 2 s after the load began, and the file is copied: what the file system has not sent to it is lost,
// as in a power cut. That it is lost is checked each time by a file that was not synced. The copy is mounted, and the process started on
// it. An object that is sent again and again until it has its receipt says how long a start takes. Then every object that ever had its
// receipt must be listed by the manifests, and all bytes that are listed, which are read, must have their digests. After -cuts-per-disk
// cuts of the same data the next cut has a disk of its own.
//
// The control is one cut of the same Site on a file system whose syncs do nothing (overlayfs mounted as volatile): there receipts must be
// lost, or the benchmark measures nothing, and fails. It also fails where a receipt is lost on the disk with syncs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/report"
)

var (
	cuts    = flag.Int("cuts", 100, "how often the power is cut")
	perDisk = flag.Int("cuts-per-disk", 10, "how often the same data goes through a power cut")
)

// The load.
const (
	smallSize, smallSenders, smallInFlight = 1500, 8, 16
	largeSize, largeSenders                = 100_000, 2
	// longestLoad is beyond every cut.
	longestLoad = 10 * time.Minute
	// A cut comes so long after the load began.
	leastLoad, maxLoad = 200 * time.Millisecond, 2 * time.Second
)

// The names and units in the report.
const (
	synced, unsynced    = "power cuts", "control: syncs do nothing"
	receipts, lost      = "receipts since the cut before", "lost"
	toReceipt, toServed = "start to receipt", "start to served"
	seconds, noUnit     = "s", "objects"
)

// startGoal in seconds.
const startGoal = 2

func main() { lab.Run(run, load.Main) }

func run(l *lab.Lab) error {
	flag.Parse()
	if *cuts < 1 || *perDisk < 1 {
		return errors.New("-cuts and -cuts-per-disk are at least 1")
	}
	r, generator := report.New("power-cut", *cuts), load.Start(l, nil)
	for done := 0; done < *cuts; {
		n := min(*perDisk, *cuts-done)
		err := l.Part(func() error {
			h, err := newHouse(l, r, generator, true)
			if err != nil {
				return err
			}
			return h.live(n)
		})
		if err != nil {
			return err
		}
		done += n
		l.Logf("%d of %d power cuts are done", done, *cuts)
	}
	if err := l.Part(func() error { return control(l, r, generator) }); err != nil {
		return err
	}
	return conclude(r)
}

// control is a cut without syncs.
func control(l *lab.Lab, r *report.Report, generator *load.Generator) error {
	h, err := newHouse(l, r, generator, false)
	if err != nil {
		return err
	}
	if err := h.sendThroughCut(); err != nil {
		return err
	}
	r.Add(unsynced, receipts, noUnit, float64(len(h.receipts)))
	n := len(h.receipts)
	if _, err := h.site.StartAndSend(); err != nil {
		r.Note("In the control the Site does not even start after the power cut, so all receipts count as lost: %.200v", err)
	} else if n, err = h.missing(); err != nil {
		r.Note("In the control the archive cannot be read whole after the power cut: %.200v", err)
		n = max(n, 1)
	}
	r.Add(unsynced, lost, noUnit, float64(n))
	return nil
}

// moment is how long the load lasts before a cut.
func moment() time.Duration { return leastLoad + rand.N(maxLoad-leastLoad) }

func conclude(r *report.Report) error {
	total := 0.0
	for _, n := range r.Values(synced, receipts) {
		total += n
	}
	missing, without := r.Values(synced, lost), r.Values(unsynced, lost)
	r.Note("%.0f objects had their receipts before the %d power cuts, of 1.5 KB in packs and of 100 KB; %d cuts in turn went through the same data.", total, *cuts, *perDisk)
	r.Note("The start is from the start of the binary to the first receipt; the table has its median, the ratio the longest.")
	r.Bound("receipts-lost", []float64{sum(missing)}, "<=", 0)
	r.Bound("start-longest-s", []float64{slices.Max(r.Values(synced, toReceipt))}, "<=", startGoal)
	r.Bound("control-receipts-lost", []float64{sum(without)}, ">=", 1)
	if err := r.Finish(); err != nil {
		return err
	}
	if n := sum(missing); n > 0 {
		return fmt.Errorf("%.0f objects with receipts were lost in power cuts", n)
	}
	if sum(without) == 0 {
		return errors.New("without syncs nothing is lost: this measures nothing")
	}
	return nil
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}
