// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// slowCatalog answers only when the board knows the reports: as one that has to read manifests.
type slowCatalog struct {
	Catalog
	board *board
	ended <-chan struct{}
}

func (c slowCatalog) Latest(instrument, mediaType string) (wire.Record, bool) {
	for reported := false; !reported; {
		c.board.mu.Lock()
		reported = c.board.reported
		c.board.mu.Unlock()
		select {
		case <-time.After(10 * time.Millisecond):
		case <-c.ended:
			return wire.Record{}, false
		}
	}
	return c.Catalog.Latest(instrument, mediaType)
}

// At the first request after a while without any, the page shows the newest picture at once, and not the one that was the newest
// before.
func TestFirstLook(t *testing.T) {
	t.Parallel()
	l := archivetest.New(t)
	c := New(Config{Site: archivetest.Site, JetStream: l.JetStream, Catalog: l.Catalog, AccessCheck: l.AccessCheck, Logger: l.Logger})
	c.board.idleAfter, c.board.patience = 10*time.Millisecond, testenv.Patience
	ctx, stop := context.WithCancel(t.Context())
	c.board.cfg.Catalog = slowCatalog{l.Catalog, c.board, ctx.Done()}
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	l.Open(c.Endpoints())
	for _, name := range []string{"first.png", "second.png"} {
		r := l.Put(archivetest.Camera, name, "png", func(r *wire.Record) { r.MediaType = "image/png" })
		l.Until("the archive has "+name, func() bool {
			newest, found := l.Catalog.Latest(archivetest.Camera, "")
			return found && newest.ID == r.ID
		})
		if a := l.Get("/"); a.Status != http.StatusOK || !strings.Contains(a.Body, `src="/archive/allsky-1/`+name+`"`) {
			t.Errorf("the page does not show %s: %d %s", name, a.Status, a.Body)
		}
		l.Until("nobody looks any more", func() bool {
			c.board.mu.Lock()
			defer c.board.mu.Unlock()
			return !c.board.reported && !c.board.pictured
		})
	}
}
