// SPDX-License-Identifier: Apache-2.0

// Command spool measures objects of 32 KiB and 1 MiB into the spool while the store is away, beside the disk, and how fast they drain, beside the store.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const (
	// storeWindow is how long the store by itself is measured.
	storeWindow = 2 * time.Second
	senders     = 64
	// firstFor is how long a sender continues that finds the store away: no longer than its first receipt takes.
	firstFor = 500 * time.Millisecond
	// packBelow is an Instrument's default.
	packBelow = 64 << 10
	// window is how long each size is sent into the spool.
	window = 1500 * time.Millisecond
	// patience is how long the spool may take to empty.
	patience = 3 * time.Minute
)

var rounds = report.Rounds(5)

var (
	sizes = []int{32 << 10, 1 << 20}
	// inFlight are the objects of a sender's connection that wait for receipts: as
	// many as the gateway has memory for.
	inFlight = map[int]int{32 << 10: 32, 1 << 20: 2}
	// workers: the best of these counts gives the store's rate.
	workers = []int{8, 16, 32}
)

// Names of what is measured.
const (
	intoSpool = "into the spool"
	disk      = "disk, group commit"
	drained   = "drained"
	store     = "store alone"
)

func main() { lab.Run(run, receiver.Main, load.Main) }

func run(l *lab.Lab) error {
	r := report.New("spool", rounds)
	b := &bench{lab: l, report: r, generator: load.Start(l, nil)}
	b.start()
	for round := range b.report.Each() {
		for i := range sizes {
			if err := b.round(sizes[(i+round)%len(sizes)], round); err != nil {
				return err
			}
		}
	}
	conclude(r)
	return r.Finish()
}

// bench has the parts, and one gateway.
type bench struct {
	lab       *lab.Lab
	report    *report.Report
	generator *load.Generator
	minio     *testenv.MinIOServer
	bucket    receiver.Bucket
	gateway   *receiver.Process
}

// profile names the file for a processor profile, if one is wanted.
func profile() string {
	dir := os.Getenv("SUBSTORM_BENCH_PROFILES")
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "spool.pprof")
}

func (b *bench) start() {
	nats := testenv.NATS(b.lab, testenv.NATSOptions{})
	b.minio = testenv.MinIO(b.lab, testenv.MinIOOptions{})
	testenv.CreateSite(b.lab, nats.JetStream(b.lab), receiver.SiteCode)
	b.minio.Bucket(b.lab, receiver.BucketName)
	b.bucket = receiver.BucketOf(b.minio.Config(receiver.BucketName))
	b.gateway = receiver.StartSite(b.lab, receiver.Backends{Bucket: b.bucket, NATS: nats.URL()},
		receiver.Options{Acknowledge: string(v1alpha1.AcknowledgeStoredOrSpooled), Framing: "LengthPrefixed", PackBelow: packBelow, Profile: profile()})
}

// round measures each pair, the peer first in every other round.
func (b *bench) round(size, round int) error {
	into := []func(int) error{b.intoSpool, b.disk}
	back := []func(int) error{b.drain, b.storeAlone}
	if round%2 == 1 {
		into[0], into[1] = into[1], into[0]
	}
	for _, measure := range append(into, back...) {
		if err := measure(size); err != nil {
			return fmt.Errorf("%s: %w", name(size), err)
		}
	}
	return nil
}

// intoSpool sends while the store is away. The first object waits until the
// gateway has seen that, and is not counted.
func (b *bench) intoSpool(size int) error {
	b.minio.Kill()
	order := load.Order{Address: b.gateway.Address, Answer: load.Receipt, Size: size, Senders: 1, InFlight: 1, Duration: firstFor}
	if _, err := b.generator.Send(order); err != nil {
		return fmt.Errorf("the first object into the spool: %w", err)
	}
	order.Senders, order.InFlight, order.Duration = senders, inFlight[size], window
	out, err := b.generator.Send(order)
	if err != nil {
		return fmt.Errorf("into the spool: %w", err)
	}
	b.report.Add(name(size), intoSpool, "MB/s", out.BytesPerSecond/1e6)
	return nil
}

func (b *bench) disk(size int) error {
	rate, err := groupCommit(b.lab.TempDir(), size, senders*inFlight[size], window)
	if err != nil {
		return fmt.Errorf("the disk: %w", err)
	}
	b.report.Add(name(size), disk, "MB/s", rate/1e6)
	return nil
}

// drain starts the store and waits until the spool is empty. The clock runs from
// the first object that left.
func (b *bench) drain(size int) error {
	full, err := b.gateway.Metric(spoolBytes)
	if err != nil {
		return err
	}
	b.minio.Start()
	var begin time.Time
	for left, end := full, time.Now().Add(patience); left > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("after %v, %.0f bytes are in the spool", patience, left)
		}
		if left, err = b.gateway.Metric(spoolBytes); err != nil {
			return err
		}
		if left < full && begin.IsZero() {
			begin, full = time.Now(), left
		}
	}
	b.report.Add(name(size), drained, "MB/s", full/time.Since(begin).Seconds()/1e6)
	return nil
}

const spoolBytes = "substorm_gateway_spool_bytes"

// storeAlone is the best of some numbers of workers.
func (b *bench) storeAlone(size int) error {
	best := 0.0
	for _, w := range workers {
		out, err := b.generator.Send(load.Order{Objects: &b.bucket, Size: size, Senders: w, Duration: storeWindow})
		if err != nil {
			return fmt.Errorf("the store alone: %w", err)
		}
		best = max(best, out.BytesPerSecond)
	}
	b.report.Add(name(size), store, "MB/s", best/1e6)
	return nil
}

func name(size int) string { return fmt.Sprintf("%d KiB", size>>10) }

func conclude(r *report.Report) {
	r.Note("Into the spool: %d senders, each with one connection and so many objects without a receipt: %v (by size).", senders, inFlight)
	r.Note("The disk: a writer for each of those, one file, one sync for what came meanwhile, up to %d MiB.", maxBatch>>20)
	r.Note("Drained: from the first object that left the spool to the last. The store alone: minio-go, the best of %v workers.", workers)
	for _, size := range sizes {
		pair := func(a, b string) []report.Pair {
			return []report.Pair{{Case: name(size), Candidate: a, OfCase: name(size), OfCandidate: b}}
		}
		r.Compare(fmt.Sprintf("spool/disk@%dKiB", size>>10), pair(intoSpool, disk), ">=", 0.8)
		r.Compare(fmt.Sprintf("replay/store@%dKiB", size>>10), pair(drained, store), ">=", 0.8)
	}
}
