// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// reads counts how often each object of a store is read.
type reads struct {
	objectstore.Store
	mu sync.Mutex
	of map[string]int
}

func (r *reads) Get(ctx context.Context, key string, part objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	r.mu.Lock()
	r.of[key]++
	r.mu.Unlock()
	return r.Store.Get(ctx, key, part)
}

// A user who retracts a day asks for each of its objects: requests that come together are looked up
// together, and two requests for one object count in their order.
func TestDayRetracted(t *testing.T) {
	l := start(t).site(t, "hub")
	const objects = 60
	now := time.Now().UTC()
	var sent []wire.Notice
	stop := l.run(l.keeper("a"))
	for i := range objects {
		sent = append(sent, l.send(camera, now.Add(time.Duration(i)*time.Millisecond), fmt.Sprint(i)))
	}
	l.await("all is listed", func() bool { return len(l.listed(camera)) == objects })
	stop()

	for _, n := range sent {
		l.ask(n, wire.StateRetracted, "the dome was closed")
	}
	l.ask(sent[1], wire.StateCurrent, "but not then")
	l.ask(sent[2], wire.StatePurged, "a person is in the picture")
	cfg := l.keeper("b")
	cfg.SweepInterval = time.Hour // it reads the day too
	store := &reads{Store: l.store, of: map[string]int{}}
	cfg.Store = store
	l.run(cfg)
	l.await("they are retracted", func() bool {
		return len(l.keys(camera, wire.StateRetracted)) == objects-2 && l.is(sent[1].ID, wire.StateCurrent) && l.is(sent[2].ID, wire.StatePurged)
	})
	l.await("bytes are gone", func() bool { return !l.there(sent[2].Key) && len(l.removals()) == 0 })
	if r := l.record(sent[1].ID); r.RestoredAt == nil || r.Reason != "but not then" {
		t.Errorf("restored: %+v", r)
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	first := wire.ManifestPartKey(l.site, camera, wire.DayOf(now), 1)
	if n := store.of[first]; n == 0 || n > objects/3 {
		t.Errorf("%s was read %d times for %d objects", first, n, objects)
	}
	for key, n := range store.of {
		if strings.HasPrefix(key, "manifest/") && n > objects/3 {
			t.Errorf("%s was read %d times", key, n)
		}
	}
}
