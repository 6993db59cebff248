// SPDX-License-Identifier: Apache-2.0

// Package downloads counts requests to the archive, by instrument, day, class of client and reader,
// and reports them to the Site.
//
// As in the ledger each incarnation writes its own absolute totals, so that what is written twice
// counts once. Answers that an incarnation gave in its last seconds before it was killed are not
// counted.
package downloads

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// writeEvery is how often changed totals are written.
	writeEvery = 10 * time.Second
	// lastWords bounds the last write.
	lastWords = 3 * time.Second
	// maxDays bounds the instruments' days that are counted apart at one time.
	maxDays = 20_000
)

// Config says whose downloads these are.
type Config struct {
	Site, Pod, Incarnation string

	JetStream jetstream.JetStream
	// Known reports whether there is an instrument of a name: of others, nothing but what
	// was found is counted apart.
	Known func(instrument string) bool
	// Interval is how often totals are written; default ten seconds.
	Interval time.Duration
	Logger   *slog.Logger
}

type dayKey struct {
	instrument string
	day        wire.Day
}

type who struct {
	reader string
	class  string
}

type counts struct {
	by      map[who]wire.DownloadCount
	changed bool
}

// Counter counts; its methods may be called from any goroutine.
type Counter struct {
	cfg Config
	kv  jetstream.KeyValue

	mu   sync.Mutex
	days map[dayKey]*counts
}

// New returns a counter; Run writes what it counts.
func New(cfg Config) *Counter {
	cfg.Interval = cmp.Or(cfg.Interval, writeEvery)
	return &Counter{cfg: cfg, days: map[dayKey]*counts{}}
}

// Count is endpoint.AccessCheckConfig.Count. It does not wait for anything.
func (c *Counter) Count(instrument, reader string, class endpoint.Class, status int, bytes int64) {
	if instrument == "" || status >= http.StatusBadRequest && !c.cfg.Known(instrument) {
		instrument = wire.NoInstrument
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := dayKey{instrument, wire.DayOf(time.Now())}
	d := c.days[key]
	if d == nil && len(c.days) >= maxDays {
		key.instrument = wire.NoInstrument
		d = c.days[key]
	}
	if d == nil {
		d = &counts{by: map[who]wire.DownloadCount{}}
		c.days[key] = d
	}
	w := who{reader, class.String()}
	if _, known := d.by[w]; !known && len(d.by) >= wire.MaxDownloadCounts {
		w.reader = wire.OtherReaders
	}
	is := wire.DownloadCount{Reader: w.reader, Class: w.class, Requests: 1, Bytes: uint64(max(0, bytes))}
	switch {
	case status == http.StatusNotModified:
		is.NotModified = 1
	case status >= http.StatusBadRequest:
		is.Refused = 1
	}
	d.by[w] = is.Plus(d.by[w])
	d.changed = true
}

// Run writes totals that changed until ctx ends, and then once more.
func (c *Counter) Run(ctx context.Context) error {
	said := ""
	for {
		if !retry.Sleep(ctx, c.cfg.Interval) {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
			defer cancel()
			if err := c.write(last); err != nil {
				c.cfg.Logger.Warn("the last downloads are not counted", "error", err)
			}
			return nil
		}
		err := c.write(ctx)
		switch {
		case err == nil:
			said = ""
		case ctx.Err() == nil && err.Error() != said:
			said = err.Error()
			c.cfg.Logger.Warn("downloads cannot be counted now: they are kept and counted later", "error", err)
		}
	}
}

// write reports the totals that changed to the Site, and forgets days that are over.
func (c *Counter) write(ctx context.Context) error {
	if c.kv == nil {
		kv, err := c.cfg.JetStream.KeyValue(ctx, wire.DownloadsBucket(c.cfg.Site))
		if err != nil {
			return err
		}
		c.kv = kv
	}
	var failed error
	for key, d := range c.take() {
		value, err := wire.Encode(d)
		if err == nil {
			_, err = c.kv.Put(ctx, wire.DownloadsKey(key.instrument, key.day, c.cfg.Pod, c.cfg.Incarnation), value)
		}
		if err != nil {
			c.markChanged(key)
			failed = errors.Join(failed, err)
		}
	}
	c.forget(wire.DayOf(time.Now().Add(-time.Hour)))
	return failed
}

// take returns the totals that changed.
func (c *Counter) take() map[dayKey]wire.Downloads {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[dayKey]wire.Downloads{}
	for key, d := range c.days {
		if !d.changed {
			continue
		}
		d.changed = false
		var totals wire.Downloads
		for _, count := range d.by {
			totals.By = append(totals.By, count)
		}
		slices.SortFunc(totals.By, func(a, b wire.DownloadCount) int {
			return cmp.Or(strings.Compare(a.Reader, b.Reader), strings.Compare(a.Class, b.Class))
		})
		all[key] = totals
	}
	return all
}

func (c *Counter) markChanged(key dayKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.days[key]; d != nil {
		d.changed = true
	}
}

// forget lets go of days before one that are written.
func (c *Counter) forget(before wire.Day) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, d := range c.days {
		if key.day < before && !d.changed {
			delete(c.days, key)
		}
	}
}
