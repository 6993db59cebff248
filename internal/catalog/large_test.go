// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// many are objects of one day, so many.
func many(from time.Time, count int) []wire.Record {
	var records []wire.Record
	for i := range count {
		records = append(records, object(from.Add(time.Duration(i)*time.Second), fmt.Sprintf("%s/%05d.jpg", wire.DayOf(from), i)))
	}
	return records
}

// However many ask right after a notice, it is laid over the day once.
func TestMergedOnce(t *testing.T) {
	l := newLab(t)
	today := wire.DayOf(noon)
	l.part(camera, many(noon, 5000)...)
	l.flush()
	c := l.catalog(nil)
	l.ready(c)
	l.day(c, camera, today)
	for i := range 3 {
		l.Announce(camera, object(noon.Add(-time.Duration(i+1)*time.Second), fmt.Sprintf("new-%d.jpg", i)))
		l.ready(c)
		var begin sync.WaitGroup
		begin.Add(1)
		group, ctx := errgroup.WithContext(t.Context())
		for range 50 {
			group.Go(func() error {
				begin.Wait()
				d, err := c.Day(ctx, camera, today)
				if err == nil && len(d.Records) != 5001+i {
					err = fmt.Errorf("%d records", len(d.Records))
				}
				return err
			})
		}
		begin.Done()
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		l.same("merges", float64(i+1), testutil.ToFloat64(c.metrics.merges))
	}
}

// A day larger than the cache is read once while a caller walks through it, together with what is announced meanwhile; only one such day
// is kept, and not for long.
func TestLargerThanTheCache(t *testing.T) {
	l := newLab(t)
	days := []time.Time{noon.AddDate(0, 0, -1), noon}
	for _, from := range days {
		l.part(camera, many(from, 200)...)
	}
	l.root(camera)
	l.flush()
	c := l.catalog(func(cfg *Config) { cfg.Memory = 20_000 })
	l.ready(c)
	reads := func() (count int) {
		for _, asked := range l.Store.Gets() {
			if strings.Contains(asked, "/p-") {
				count++
			}
		}
		return count
	}
	walk := func(from time.Time) {
		t.Helper()
		group, ctx := errgroup.WithContext(context.Background())
		group.SetLimit(4)
		for i := range 200 {
			group.Go(func() error {
				_, err := c.Find(ctx, camera, fmt.Sprintf("%s/%05d.jpg", wire.DayOf(from), i))
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	one := int64(0)
	for _, from := range days {
		l.Store.Gets()
		walk(from)
		l.same("files read for 200 objects", 1, reads())
		held := int64(testutil.ToFloat64(c.metrics.cached))
		if one == 0 {
			one = held
		} else if held > one+one/10 {
			t.Errorf("%d bytes are held, of one such day %d", held, one)
		}
	}
	l.Announce(camera, object(noon.Add(-time.Hour), "new.jpg"))
	l.ready(c)
	walk(noon)
	l.find(c, "new.jpg")
	l.same("files read for what is new", 0, reads())

	c.cache.mu.Lock()
	c.cache.keep = time.Millisecond
	c.cache.mu.Unlock()
	walk(noon)
	testenv.Await(t, "the day is forgotten", func() bool { return int64(testutil.ToFloat64(c.metrics.cached)) <= 20_000 })
	walk(noon)
	if reads() == 0 {
		t.Error("it is not read again")
	}
}
