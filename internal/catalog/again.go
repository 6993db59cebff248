// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"maps"
	"slices"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

// Readers that follow an instrument are notified of its newest object. If that object was retracted, or notices were missed, the newest
// one is looked up again, and until it is found no notice is passed on: there may be a newer object.

// forget forgets what is to be looked for again.
func (n *newest) forget() {
	clear(n.of)
	clear(n.heard)
	n.typed = false
	n.generation++
}

// forgetMissed is called when the index moved, or the notices are another stream's, and
// forgets the newest objects where something was listed that was not heard: what came
// and what was retracted while NATS was away. The mutex is held.
func (c *Catalog) forgetMissed(listed wire.StreamCursor) {
	if listed.Epoch == "" || c.overlay.heard(listed) {
		return
	}
	for instrument, n := range c.newest {
		n.forget()
		n.types = nil
		c.lookAgain(instrument, n)
	}
}

// lookAgain requests a lookup of the newest object if the instrument has subscribed readers. The caller holds the mutex.
func (c *Catalog) lookAgain(instrument string, n *newest) {
	if len(n.readers) == 0 {
		return
	}
	c.again[instrument] = struct{}{}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// tellAgain looks for newest objects until ctx ends. Errors: ctx's.
func (c *Catalog) tellAgain(ctx context.Context) error {
	for said := ""; ; {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		c.mu.Lock()
		instruments := slices.Collect(maps.Keys(c.again))
		clear(c.again)
		c.mu.Unlock()
		var failed error
		for _, instrument := range instruments {
			err := c.tellNewest(instrument)
			if err == nil {
				continue
			}
			failed = err
			if ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				c.cfg.Log.Warn("cannot determine the latest object; its followers are notified later", "instrument", instrument, "error", err)
			}
		}
		if failed == nil {
			said = ""
			continue
		}
		if !retry.Sleep(ctx, retryPause) {
			return ctx.Err()
		}
	}
}

// tellNewest tells the readers that follow an instrument of its newest object. If that
// cannot be known now, it is to be looked for again.
func (c *Catalog) tellNewest(instrument string) error {
	_, err := c.latest(instrument, "")
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.newestOf(instrument)
	if err == nil && !c.holds(instrument) {
		n.know("", nil)
	}
	r, known := n.of[""]
	if !known {
		c.lookAgain(instrument, n)
		return err
	}
	if r != nil {
		for reader := range n.readers {
			reader.tell(*r)
		}
	}
	return nil
}
