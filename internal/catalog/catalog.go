// SPDX-License-Identifier: Apache-2.0

// Package catalog tells what a Site's archive holds, to those who serve it: which
// days, which objects, which of them a path means, and which is the newest.
//
// It reads what the manifest's writer keeps for readers (wire.IndexEntry, roots, manifests), and lists the bucket only
// where that names a file of a manifest which the bucket does not have. Objects that were announced and are in no
// closed part yet lie over that, so that an object is known within a second of its notice: see overlay.go for what is
// not known of it yet.
//
// All that it returns is shared and must not be changed.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/watch"
	"github.com/substorm/substorm/internal/wire"
)

// ErrNotFound: the archive has no such object, or instrument.
var ErrNotFound = errors.New("the archive holds no such object")

const (
	// DefaultMemory is how much decoded days may take, in bytes.
	DefaultMemory = 64 << 20
	// decodes is how many manifests are decoded at once.
	decodes = 4
	// retryPause is between tries to follow the notices.
	retryPause = time.Second
	// patience is how long a question waits for the index.
	patience = 10 * time.Second
)

// Config says whose archive it is.
type Config struct {
	Site      string
	JetStream jetstream.JetStream
	Store     objectstore.Store
	// Memory bounds the decoded manifests that are kept, in bytes. A day that is larger is kept beside them, one at a time, while it is
	// being read.
	Memory int64
	// Naming returns the template of an instrument's published paths; empty where it
	// declares none. Optional: without it an object whose path only the manifest's
	// writer knows shows for a minute under its key.
	Naming func(instrument string) string
	// RepeatWindow returns how far apart equal objects of an instrument are received that are duplicates; 0: none are. If it is not 0, a
	// new object with the bytes of another one of its day does not show before it is listed, since it may be listed as a duplicate of that.
	// Optional: without it such an object shows for a minute.
	RepeatWindow func(instrument string) time.Duration
	Log          *slog.Logger
	Registerer   prometheus.Registerer
}

// Catalog answers any number of goroutines while Run runs. Until the index is known
// they wait, up to ten seconds: context.DeadlineExceeded.
type Catalog struct {
	cfg     Config
	metrics *metrics
	cache   *cache
	loads   singleflight.Group
	// decodes bounds the decodes in progress; decodesLarge those of days that are larger than the cache.
	decodes, decodesLarge chan struct{}

	// ready is closed when the index was read and the notices since then were.
	ready     chan struct{}
	readyOnce sync.Once

	mu sync.Mutex
	// index is in force, next being the one that is read; it may be the same.
	index, next *index
	overlay     *overlay
	// moved is closed when the index changes.
	moved chan struct{}
	// started is the context that Latest works under.
	started context.Context
	newest  map[string]*newest
	// again are the instruments whose newest object is looked for again; wake says so.
	again map[string]struct{}
	wake  chan struct{}
}

// index is what the bucket of the index holds.
type index struct {
	entries map[string]wire.IndexEntry
	listed  wire.StreamCursor
}

// New returns a catalog; Run runs it.
func New(cfg Config) *Catalog {
	if cfg.Memory <= 0 {
		cfg.Memory = DefaultMemory
	}
	m := newMetrics(cfg.Registerer)
	return &Catalog{
		cfg: cfg, metrics: m, cache: newCache(cfg.Memory, m), decodes: make(chan struct{}, decodes),
		decodesLarge: make(chan struct{}, 1),
		ready:        make(chan struct{}), index: newIndex(), next: newIndex(), overlay: newOverlay(maxRecords, maxBytes, m),
		moved: make(chan struct{}), started: context.Background(), newest: make(map[string]*newest),
		again: make(map[string]struct{}), wake: make(chan struct{}, 1),
	}
}

func newIndex() *index { return &index{entries: make(map[string]wire.IndexEntry)} }

// Run follows the index and the notices until ctx ends. Errors: ctx's.
func (c *Catalog) Run(ctx context.Context) error {
	c.mu.Lock()
	c.started = ctx
	c.mu.Unlock()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { c.watch(ctx); return ctx.Err() })
	group.Go(func() error { return c.follow(ctx) })
	group.Go(func() error { return c.tellAgain(ctx) })
	return group.Wait()
}

// Ready is closed once the catalog answers.
func (c *Catalog) Ready() <-chan struct{} { return c.ready }

func (c *Catalog) await(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the index of the archive is not known yet: %w", ctx.Err())
	}
}

// watch keeps the index. One that is not complete is not taken: what was known stays.
func (c *Catalog) watch(ctx context.Context) {
	watch.Run(ctx, c.cfg.JetStream, watch.Config{
		Bucket: wire.IndexBucket(c.cfg.Site), What: "the index of the archive", Logger: c.cfg.Log,
		Begin: func(watch.Bucket) { c.begin() },
		Take:  c.take,
		Settle: func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.next.listed.Epoch == "" {
				return
			}
			c.index = c.next
			c.forgetMissed(c.index.listed)
			for instrument := range c.overlay.trim(c.index.listed) {
				if n := c.newest[instrument]; n != nil {
					n.forget()
					c.lookAgain(instrument, n)
				}
			}
			close(c.moved)
			c.moved = make(chan struct{})
		},
	})
}

func (c *Catalog) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = newIndex()
}

func (c *Catalog) take(e jetstream.KeyValueEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	removed := e.Operation() != jetstream.KeyValuePut
	switch {
	case e.Key() == wire.IndexListedKey && removed:
		next := newIndex() // it is not complete any more: what is known stays
		for name, entry := range c.next.entries {
			next.entries[name] = entry
		}
		c.next = next
	case e.Key() == wire.IndexListedKey:
		at, err := wire.Decode[wire.StreamCursor](e.Value())
		if err != nil {
			c.cfg.Log.Error("cannot read the index of the archive; its last known state stays in force", "entry", e.Key(), "error", err)
			return
		}
		c.next.listed = at
	case removed:
		delete(c.next.entries, e.Key())
	default:
		entry, err := wire.Decode[wire.IndexEntry](e.Value())
		if err != nil {
			c.cfg.Log.Error("cannot read an entry of the index of the archive; its last known state stays in force", "entry", e.Key(), "error", err)
			if before, known := c.index.entries[e.Key()]; known {
				c.next.entries[e.Key()] = before
			}
			return
		}
		c.next.entries[e.Key()] = entry
	}
}

// follow reads the notices since the place that the index knows.
func (c *Catalog) follow(ctx context.Context) error {
	name := wire.NoticeStream(c.cfg.Site)
	for said := ""; ; {
		c.mu.Lock()
		listed, moved := c.index.listed, c.moved
		c.forgetMissed(listed)
		from := c.overlay.begin(listed)
		c.mu.Unlock()
		if listed.Epoch == "" {
			select {
			case <-moved:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		err := c.tail(ctx, name, listed.Epoch, from)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err.Error() != said {
			said = err.Error()
			c.cfg.Log.Warn("cannot follow the notices; new objects show once they are listed", "stream", name, "error", err)
		}
		if !retry.Sleep(ctx, retryPause) {
			return ctx.Err()
		}
	}
}

// tail gives the overlay what comes.
func (c *Catalog) tail(ctx context.Context, name, epoch string, from uint64) error {
	last, err := stream.LastOf(ctx, c.cfg.JetStream, name, wire.NoticeSubjects(c.cfg.Site))
	if err != nil {
		return err
	}
	if last < from {
		c.isReady()
	}
	return stream.Tail(ctx, c.cfg.JetStream, stream.ReaderConfig{Stream: name, Epoch: epoch, Subject: wire.NoticeSubjects(c.cfg.Site), Start: from},
		func(messages []stream.Message) error {
			for _, m := range messages {
				c.hear(epoch, m)
			}
			if messages[len(messages)-1].Sequence >= last {
				c.isReady()
			}
			return nil
		})
}

func (c *Catalog) isReady() { c.readyOnce.Do(func() { close(c.ready) }) }

// hear takes one notice.
func (c *Catalog) hear(epoch string, m stream.Message) {
	n, err := wire.Decode[wire.Notice](m.Data)
	if err == nil && (n.Site != c.cfg.Site || m.Subject != n.Subject()) {
		err = fmt.Errorf("it names instrument %q of site %q: %w", n.Instrument, n.Site, wire.ErrMalformed)
	}
	if err == nil {
		err = errors.Join(m.CheckOrigin(n.Site), n.CheckPlace())
	}
	if err == nil && n.IsChange() && !wire.IsDecided(n, m.Header.Get(wire.HeaderSource)) {
		err = fmt.Errorf("the archivist has not published this retraction of %s: %w", n.ID, wire.ErrMalformed)
	}
	if err != nil {
		c.metrics.refused.Inc() // the manifest's writer says which, and why
	}
	again := m.Header.Get(wire.HeaderRefilled) != "" // it comes from the manifests
	c.mu.Lock()
	defer c.mu.Unlock()
	c.overlay.reached(epoch, m.Sequence)
	if err != nil || again || m.Sequence < c.index.listed.Next && c.index.listed.Epoch == epoch {
		return
	}
	c.overlay.add(epoch, m.Sequence, m.At, n, len(m.Data))
	c.hearNewest(n)
}
