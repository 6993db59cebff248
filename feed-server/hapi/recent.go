// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"container/list"
	"sync"
)

const (
	// seriesPart of the memory of recent is what one series may take.
	seriesPart = 8
	// seriesCost is what a series takes beside its rows, in bytes, about.
	seriesCost = 256
)

// recent holds the samples of segments that were decoded last: who looks at the last day
// again and again has all but its last minutes from here. A segment never changes.
type recent struct {
	mu    sync.Mutex
	free  int
	most  int
	all   map[seriesKey]*list.Element
	order list.List // the one that was asked for last in front
}

func newRecent(memory int) *recent {
	return &recent{free: memory, most: memory / seriesPart, all: map[seriesKey]*list.Element{}}
}

// get returns what is held; nil: nothing.
func (c *recent) get(key seriesKey) *series {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[key]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*series)
}

// put holds a series, in place of the series that were requested longest ago.
func (c *recent) put(s *series) {
	if s.cost() > c.most {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[s.key] != nil { // another request was faster
		return
	}
	c.all[s.key] = c.order.PushFront(s)
	for c.free -= s.cost(); c.free < 0; {
		last := c.order.Remove(c.order.Back()).(*series)
		delete(c.all, last.key)
		c.free += last.cost()
	}
}
