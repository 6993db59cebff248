// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	work "github.com/substorm/substorm/archivist/worker"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// environment tells a process that it is the archivist's.
const environment = "SUBSTORM_BENCH_MANIFEST"

const (
	doRun    = "run"
	doStop   = "stop"
	doCounts = "counts"
	doRead   = "read"
	// never is longer than any run.
	never = 1000 * time.Hour
)

// order is for the archivist's process.
type order struct {
	Do           string
	Bucket       receiver.Bucket
	NATS         string
	Dir          string
	PartInterval time.Duration
	// Compact closed days.
	Compact    bool
	Day        wire.Day
	Instrument string
}

// answer is what it did since it began; the answer of doRead also has what reading took.
type answer struct {
	Parts, Versions, Roots int64 // bytes; Roots are all others
	PartPuts               int64
	PeakMiB                float64
	// The answer of doRead: objects read and listed; Foreign are those of another day.
	Gets, Listed, Foreign int64
	Records               int
	Millis                float64
	Error                 string
}

// archivist is a process of its own.
type archivist struct {
	worker *process.Worker[order, answer]
	start  order
}

func (a archivist) order(o order) (answer, error) {
	got, err := a.worker.Do(o)
	if err == nil && got.Error != "" {
		err = fmt.Errorf("archivist: %s: %s", o.Do, got.Error)
	}
	return got, err
}

func (a archivist) run(compact bool) error {
	o := a.start
	o.Compact = compact
	_, err := a.order(o)
	return err
}

func (a archivist) stop() error {
	_, err := a.order(order{Do: doStop})
	return err
}

func (a archivist) counts() (answer, error) { return a.order(order{Do: doCounts}) }

func (a archivist) read(instrument string) (answer, error) {
	o := a.start
	o.Do, o.Instrument = doRead, instrument
	return a.order(o)
}

// running is the archivist of this process.
var running struct {
	store  *counted
	cancel context.CancelFunc
	done   chan error
}

// do carries out an order in the archivist's process.
func do(o order) answer {
	var a answer
	var err error
	switch o.Do {
	case doRun:
		err = begin(o)
	case doStop:
		running.cancel()
		err = <-running.done
	case doCounts:
		a, err = running.store.counts()
	case doRead:
		a, err = read(o)
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

func begin(o order) error {
	bucket, err := objectstore.Open(o.Bucket.Config())
	if err != nil {
		return err
	}
	if running.store == nil {
		running.store = &counted{}
	}
	running.store.Store = bucket
	nc, err := nats.Connect(o.NATS)
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	cfg := work.Config{
		Site: receiver.SiteCode, Pod: gateway, Incarnation: "9f2c41d07ab35e68", JetStream: js, Store: running.store, Settings: settings,
		PartInterval: o.PartInterval, SweepInterval: never, NoticeRetention: time.Millisecond, TrimInterval: time.Second,
		CompactInterval: never, CompactGrace: time.Millisecond, ScratchDir: o.Dir,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})), Metrics: prometheus.NewRegistry(),
	}
	if o.Compact {
		cfg.CompactInterval = time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	running.cancel, running.done = cancel, make(chan error, 1)
	go func() {
		defer nc.Close()
		running.done <- work.Run(ctx, cfg)
	}()
	return nil
}

func settings(instrument string) (wire.InstrumentEntry, bool) {
	return wire.InstrumentEntry{
		Instrument: instrument, RepeatWindowMillis: (720 * time.Hour).Milliseconds(), SegmentAgeMillis: 600_000, SegmentSize: 64 << 20,
	}, true
}

// read reads one instrument's day, as listings do.
func read(o order) (answer, error) {
	bucket, err := objectstore.Open(o.Bucket.Config())
	if err != nil {
		return answer{}, err
	}
	store := &counted{Store: bucket, within: wire.ManifestPrefix(receiver.SiteCode, o.Instrument, o.Day)}
	begin := time.Now()
	var a answer
	for _, err := range manifest.Day(context.Background(), store, receiver.SiteCode, o.Instrument, o.Day) {
		if err != nil {
			return a, err
		}
		a.Records++
	}
	a.Millis = float64(time.Since(begin)) / float64(time.Millisecond)
	a.Gets, a.Listed, a.Foreign = store.gets.Load(), store.listed.Load(), store.foreign.Load()
	return a, nil
}

// counted counts what goes into a store and comes out of it.
type counted struct {
	objectstore.Store
	// within is what the keys begin with that may be read.
	within string

	parts, versions, roots, partPuts, gets, listed, foreign atomic.Int64
}

func (c *counted) counts() (answer, error) {
	peak, err := process.PeakMiB(os.Getpid())
	return answer{Parts: c.parts.Load(), Versions: c.versions.Load(), Roots: c.roots.Load(), PartPuts: c.partPuts.Load(), PeakMiB: peak}, err
}

// Put implements objectstore.Store.
func (c *counted) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts objectstore.PutOptions) error {
	err := c.Store.Put(ctx, key, body, size, opts)
	if err == nil {
		c.put(key, size)
	}
	return err
}

func (c *counted) put(key string, size int64) {
	file, err := wire.ParseManifestKey(key)
	switch {
	case err == nil && file.Compacted:
		c.versions.Add(size)
	case err == nil:
		c.parts.Add(size)
		c.partPuts.Add(1)
	default:
		c.roots.Add(size)
	}
}

// Get implements objectstore.Store.
func (c *counted) Get(ctx context.Context, key string, r objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	c.gets.Add(1)
	if !strings.HasPrefix(key, c.within) {
		c.foreign.Add(1)
	}
	return c.Store.Get(ctx, key, r)
}

// NewUpload implements objectstore.Store: manifests are too small for uploads.
func (c *counted) NewUpload(context.Context, string, objectstore.PutOptions) (objectstore.Upload, error) {
	return nil, errors.New("an upload is not counted")
}

// List implements objectstore.Store.
func (c *counted) List(ctx context.Context, prefix, startAfter string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		for info, err := range c.Store.List(ctx, prefix, startAfter) {
			c.listed.Add(1)
			if !strings.HasPrefix(cmp.Or(info.Key, c.within), c.within) {
				c.foreign.Add(1)
			}
			if !yield(info, err) {
				return
			}
		}
	}
}
