// SPDX-License-Identifier: Apache-2.0

// Command manifest measures what the manifests of 1,000 instruments at 1 Hz cost in a day of virtual time: bytes written, memory, and what listing a day reads.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/testenv"
)

const (
	instrumentsVariable = "SUBSTORM_BENCH_MANIFEST_INSTRUMENTS"
	minutesVariable     = "SUBSTORM_BENCH_MANIFEST_MINUTES"
	paceVariable        = "SUBSTORM_BENCH_MANIFEST_PACE"

	// memory is what a gateway may have by default, in MiB; the manifests are one part of it.
	memory = 256
	// written is the goal for all bytes by those of the closed day.
	written = 3
)

func main() {
	process.Work(environment, do)
	lab.Run(run)
}

// size is how much of the day is run: what a record costs does not depend on how many minutes there are.
type size struct {
	instruments, minutes int
	// pace is how long a minute takes, and so how often parts are closed.
	pace time.Duration
}

func sizes() (size, error) {
	s := size{instruments: 1000, minutes: 60, pace: 20 * time.Second}
	var err error
	if s.instruments, err = lab.Number(instrumentsVariable, s.instruments, 1); err != nil {
		return s, err
	}
	if s.minutes, err = lab.Number(minutesVariable, s.minutes, 1); err != nil {
		return s, err
	}
	s.minutes = min(s.minutes, 24*60)
	s.pace, err = lab.Duration(paceVariable, s.pace)
	return s, err
}

func run(l *lab.Lab) error {
	ctx := context.Background()
	s, err := sizes()
	if err != nil {
		return err
	}
	r := report.New("manifest", 1)
	// Syncs are not measured: each byte is counted, whenever it reaches the disk.
	nats, minio := testenv.NATS(l, testenv.NATSOptions{Unsynced: true}), testenv.MinIO(l, testenv.MinIOOptions{})
	js := nats.JetStream(l)
	testenv.CreateSite(l, js, receiver.SiteCode)
	minio.Bucket(l, receiver.BucketName)
	day, err := openSupply(ctx, js, s)
	if err != nil {
		return err
	}
	indexed, err := countIndex(nats.Connect(l))
	if err != nil {
		return err
	}
	worker := process.StartWorker[order, answer](l, environment, nil)
	w := archivist{worker: worker, start: order{
		Do: doRun, Bucket: receiver.BucketOf(minio.Config(receiver.BucketName)), NATS: nats.URL(), Dir: l.TempDir(), PartInterval: s.pace, Day: day.day,
	}}
	b := &bench{report: r, size: s, supply: day, worker: w, indexed: indexed}
	if err := b.measure(ctx); err != nil {
		return err
	}
	return r.Finish()
}

type bench struct {
	report  *report.Report
	size    size
	supply  *supply
	worker  archivist
	indexed func() int64
}

func (b *bench) measure(ctx context.Context) error {
	// The day is long over: the compactor would take it as soon as it is there.
	if err := b.worker.run(false); err != nil {
		return err
	}
	early, err := b.receive(ctx)
	if err != nil {
		return err
	}
	opened, err := b.worker.counts()
	if err != nil {
		return err
	}
	if err := b.worker.stop(); err != nil {
		return err
	}
	if err := b.worker.run(true); err != nil {
		return err
	}
	if err := b.supply.compacted(ctx); err != nil {
		return err
	}
	closed, err := b.worker.counts()
	if err != nil {
		return err
	}
	read, err := b.worker.read(instrumentName(b.size.instruments / 2))
	if err != nil {
		return err
	}
	if want := b.size.minutes * 60; read.Records != want {
		return fmt.Errorf("a day lists %d records of %d", read.Records, want)
	}
	b.tell(early, opened, closed, read)
	return nil
}

// receive publishes the day's notices, and returns what was there after a tenth.
func (b *bench) receive(ctx context.Context) (early answer, err error) {
	begin := time.Now()
	for minute := range b.size.minutes {
		if err := b.supply.minute(ctx, minute); err != nil {
			return early, err
		}
		time.Sleep(time.Until(begin.Add(time.Duration(minute+1) * b.size.pace)))
		if minute == b.size.minutes/10 {
			if early, err = b.worker.counts(); err != nil {
				return early, err
			}
		}
		if (minute+1)%60 == 0 {
			fmt.Fprintf(os.Stderr, "%d of %d minutes are announced, after %v\n", minute+1, b.size.minutes, time.Since(begin).Round(time.Second))
		}
	}
	return early, b.supply.listed(ctx)
}

func (b *bench) tell(early, opened, closed, read answer) {
	r, records := b.report, float64(b.size.instruments*b.size.minutes*60)
	index := float64(b.indexed())
	all := float64(closed.Parts+closed.Versions+closed.Roots) + index
	r.Note("%d instruments, %d minutes of a day at 1 Hz, a minute in %v: %.0f objects of their own.", b.size.instruments, b.size.minutes, b.size.pace, records)
	for _, c := range []struct {
		what  string
		bytes float64
	}{{"parts", float64(closed.Parts)}, {"closed day", float64(closed.Versions)}, {"roots and changes", float64(closed.Roots)}, {"index in JetStream", index}, {"all", all}} {
		r.Add(c.what, "written", "B a record", c.bytes/records)
	}
	r.Note("%d parts were written, %.2f an instrument and minute.", closed.PartPuts, float64(closed.PartPuts)/float64(b.size.instruments*b.size.minutes))
	r.Add("after a tenth of the day", "resident", "MiB", early.PeakMiB)
	r.Add("at its end", "resident", "MiB", opened.PeakMiB)
	r.Add("compacted", "resident", "MiB", closed.PeakMiB)
	r.Note("Listing one instrument's day read %d objects, all of that day but %d, and %d keys were listed; the last record came after %.1f ms.",
		read.Gets, read.Foreign, read.Listed, read.Millis)
	r.Bound("written/closed-day", []float64{all / float64(closed.Versions)}, "<=", written)
	r.Bound("memory/MiB", []float64{closed.PeakMiB}, "<=", memory)
	r.Bound("listing/objects-of-other-days", []float64{float64(read.Foreign)}, "<=", 0)
}
