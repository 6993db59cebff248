// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"container/list"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/metric"
	"github.com/substorm/substorm/internal/wire"
)

// keepLarge is how long a value that is larger than the cache is kept after its last use.
const keepLarge = time.Minute

// cache keeps what was used last, up to so many bytes; and beside that one value that is
// larger than all this space, so that who reads it bit by bit does not have it decoded
// for each bit.
type cache struct {
	mu      sync.Mutex
	max     int64
	bytes   int64
	order   *list.List // the one used last in front
	entries map[string]*list.Element
	metrics *metrics

	// large is a value larger than the cache; forget drops it when it was not used for the time keep.
	large  *cached
	keep   time.Duration
	forget *time.Timer
}

type cached struct {
	key   string
	value any
	cost  int64
}

func newCache(most int64, m *metrics) *cache {
	c := &cache{max: most, order: list.New(), entries: make(map[string]*list.Element), metrics: m, keep: keepLarge}
	c.forget = time.AfterFunc(c.keep, c.forgetLarge)
	return c
}

func (c *cache) get(key string) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.large != nil && c.large.key == key {
		c.forget.Reset(c.keep)
		return c.large.value, true
	}
	e, found := c.entries[key]
	if !found {
		return nil, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).value, true
}

// put keeps a value, instead of that which had its key.
func (c *cache) put(key string, value any, cost int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, found := c.entries[key]; found {
		c.remove(e)
	}
	if c.large != nil && c.large.key == key {
		c.large = nil
	}
	if cost > c.max {
		c.large = &cached{key, value, cost}
		c.forget.Reset(c.keep)
	} else {
		c.entries[key] = c.order.PushFront(&cached{key, value, cost})
		c.bytes += cost
	}
	for c.bytes > c.max {
		c.remove(c.order.Back())
	}
	c.count()
}

func (c *cache) forgetLarge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.large = nil
	c.count()
}

func (c *cache) remove(e *list.Element) {
	v := e.Value.(*cached)
	c.order.Remove(e)
	delete(c.entries, v.key)
	c.bytes -= v.cost
}

func (c *cache) count() {
	bytes := c.bytes
	if c.large != nil {
		bytes += c.large.cost
	}
	c.metrics.cached.Set(float64(bytes))
}

// load returns what is kept under a key, or makes it, about so large: once, however many
// ask, and of what is larger than the cache one at a time. It is made to the end also
// where those who asked went away, and must not load itself.
func (c *Catalog) load(ctx context.Context, key string, size int64, produce func(context.Context) (any, int64, error)) (any, error) {
	if v, found := c.cache.get(key); found {
		c.metrics.hits.Inc()
		return v, nil
	}
	decodes := c.decodes
	if size > c.cache.max {
		decodes = c.decodesLarge
	}
	answer := c.loads.DoChan(key, func() (any, error) {
		decodes <- struct{}{}
		defer func() { <-decodes }()
		c.metrics.misses.Inc()
		v, cost, err := produce(context.WithoutCancel(ctx))
		if err != nil {
			return nil, err
		}
		c.cache.put(key, v, cost)
		return v, nil
	})
	select {
	case a := <-answer:
		return a.Val, a.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dayCost is what a wire.RootDay takes beside its strings, in bytes.
const dayCost = 280

func costOf(days []wire.RootDay) int64 {
	cost := int64(len(days)) * dayCost
	for _, d := range days {
		cost += int64(len(d.FirstPath) + len(d.LastPath) + 16*len(d.Parts))
		for _, dir := range d.Dirs {
			cost += int64(len(dir)) + 16
		}
	}
	return cost
}

func sortedKeys[V any](m map[string]V, more []string) []string {
	all := slices.AppendSeq(more, maps.Keys(m))
	slices.Sort(all)
	return slices.Compact(all)
}

type metrics struct {
	hits, misses, merges, dropped, refused, gone prometheus.Counter
	cached, fresh, freshBytes                    prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) *metrics {
	return &metrics{
		hits:       metric.Counter(registry, "substorm_catalog_hits_total", "Decoded manifests and roots that were in memory."),
		misses:     metric.Counter(registry, "substorm_catalog_misses_total", "Manifests and roots that were read and decoded."),
		merges:     metric.Counter(registry, "substorm_catalog_merges_total", "How often notices were laid over a day of a manifest."),
		dropped:    metric.Counter(registry, "substorm_catalog_dropped_total", "New objects that show when they are listed, because there is no space for more."),
		refused:    metric.Counter(registry, "substorm_catalog_notices_refused_total", "Notices that could not be understood."),
		gone:       metric.Counter(registry, "substorm_catalog_files_gone_total", "Days of which the index named a file of a manifest that the object store did not have."),
		cached:     metric.Gauge(registry, "substorm_catalog_cached_bytes", "What decoded manifests and roots take."),
		fresh:      metric.Gauge(registry, "substorm_catalog_fresh_objects", "New objects that are in no closed part of a manifest yet."),
		freshBytes: metric.Gauge(registry, "substorm_catalog_fresh_bytes", "What they take."),
	}
}
