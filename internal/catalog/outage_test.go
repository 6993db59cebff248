// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Before the index is complete, no request is answered with "there is nothing"; what is known of one index stays while another is made.
func TestIndexNotComplete(t *testing.T) {
	l := newLab(t)
	l.Announce(camera, object(noon, "a.jpg"))
	l.part(camera, object(noon, "a.jpg"))
	value, err := wire.Encode(l.told(camera).entry)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.kv.Put(t.Context(), camera, value); err != nil {
		t.Fatal(err)
	}
	c := l.catalog(nil)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Find(short, camera, "a.jpg"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an index that is not complete: %v", err)
	}
	l.flush()
	if r, err := c.Find(t.Context(), camera, "a.jpg"); err != nil || r.Path != "a.jpg" {
		t.Errorf("%+v, %v", r, err)
	}

	// The bucket is lost, recreated, and filled later.
	if err := l.JetStream.DeleteKeyValue(t.Context(), wire.IndexBucket(site)); err != nil {
		t.Fatal(err)
	}
	if l.kv, err = l.JetStream.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: wire.IndexBucket(site), Storage: jetstream.FileStorage, History: 1}); err != nil {
		t.Fatal(err)
	}
	if r := l.find(c, "a.jpg"); r.Path != "a.jpg" {
		t.Errorf("while the index is made anew: %+v", r)
	}
	if _, err := l.kv.Put(t.Context(), mag, []byte(`{"format":2,"open":7}`)); err != nil {
		t.Fatal(err)
	}
	l.Announce(camera, object(noon.Add(time.Second), "b.jpg"))
	l.part(camera, object(noon.Add(time.Second), "b.jpg"))
	l.flush()
	l.ready(c)
	for _, path := range []string{"a.jpg", "b.jpg"} {
		if r := l.find(c, path); r.Path != path {
			t.Errorf("in the new index %q is %+v", path, r)
		}
	}
}

// An outage of NATS loses nothing: what arrived meanwhile is there afterwards. A notice stream that was recreated is a different one.
func TestOutage(t *testing.T) {
	l := newLab(t)
	l.flush()
	c := l.catalog(nil)
	l.Announce(camera, object(noon, "a.jpg"))
	l.ready(c)
	l.NATS.Kill()
	if r := l.find(c, "a.jpg"); r.Path != "a.jpg" {
		t.Errorf("with NATS away: %+v", r)
	}
	l.NATS.Start()
	testenv.Await(t, "NATS answers", func() bool {
		_, err := l.JetStream.AccountInfo(t.Context())
		return err == nil
	})
	l.Announce(camera, object(noon.Add(time.Second), "b.jpg"))
	testenv.Await(t, "what came after the outage is found", func() bool { return l.find(c, "b.jpg").Path == "b.jpg" })

	s, err := l.JetStream.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	if err := l.JetStream.DeleteStream(t.Context(), cfg.Name); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond) // an epoch is a millisecond
	if _, err := l.JetStream.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if l.Epoch, _, err = stream.Epoch(t.Context(), l.JetStream, cfg.Name); err != nil {
		t.Fatal(err)
	}
	l.Next = 1
	l.part(camera, object(noon, "a.jpg"), object(noon.Add(time.Second), "b.jpg"))
	l.flush()
	l.Announce(camera, object(noon.Add(2*time.Second), "c.jpg"))
	l.ready(c)
	d := l.day(c, camera, wire.DayOf(noon))
	l.same("with another stream", []string{"Current a.jpg", "Current b.jpg", "Current c.jpg"}, paths(d.Records))
}

// The overlay is bounded: the oldest wait until they are listed.
func TestOverlayIsBounded(t *testing.T) {
	l := newLab(t)
	l.flush()
	c := l.catalog(nil)
	c.mu.Lock()
	c.overlay.maxRecords = 10
	c.mu.Unlock()
	var all []wire.Record
	for i := range 25 {
		all = append(all, object(noon.Add(time.Duration(i)*time.Second), fmt.Sprintf("%02d.jpg", i)))
	}
	l.Announce(camera, all...)
	l.ready(c)
	d := l.day(c, camera, wire.DayOf(noon))
	if len(d.Records) != 10 || d.Records[0].Path != "15.jpg" {
		t.Errorf("%d records, the first %s", len(d.Records), d.Records[0].Path)
	}
	c.mu.Lock()
	if c.overlay.bytes <= 0 || c.overlay.bytes > 10*4096 {
		t.Errorf("ten take %d bytes", c.overlay.bytes)
	}
	c.overlay.maxBytes = 1
	c.mu.Unlock()
	l.Announce(camera, object(noon.Add(time.Minute), "z.jpg"))
	l.ready(c)
	if n := l.fresh(c); n != 0 {
		t.Errorf("%d in one byte", n)
	}
	l.part(camera, all...)
	l.flush()
	l.ready(c)
	if d := l.day(c, camera, wire.DayOf(noon)); len(d.Records) != 25 {
		t.Errorf("%d of 25 are listed", len(d.Records))
	}
}

// Memory for decoded days is bounded, and a day that many ask for at once is read once.
func TestMemory(t *testing.T) {
	l := newLab(t)
	for i := range 10 {
		var records []wire.Record
		for j := range 200 {
			records = append(records, object(noon.AddDate(0, 0, -i).Add(time.Duration(j)*time.Second), fmt.Sprintf("%d/%03d.jpg", i, j)))
		}
		l.part(camera, records...)
	}
	l.flush()
	c := l.catalog(func(cfg *Config) { cfg.Memory = 800 << 10 })
	l.ready(c)
	for i := range 10 {
		if d := l.day(c, camera, wire.DayOf(noon.AddDate(0, 0, -i))); len(d.Records) != 200 {
			t.Errorf("%d records", len(d.Records))
		}
	}
	c.cache.mu.Lock()
	bytes, entries := c.cache.bytes, len(c.cache.entries)
	c.cache.mu.Unlock()
	if bytes > 800<<10 || entries < 1 || entries > 8 {
		t.Errorf("%d days take %d bytes", entries, bytes)
	}
	l.Store.Gets()
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if d, err := c.Day(t.Context(), camera, wire.DayOf(noon)); err != nil || len(d.Records) != 200 {
				t.Errorf("%v", err)
			}
		})
	}
	group.Wait()
	if asked := l.Store.Gets(); len(asked) != 1 {
		t.Errorf("fifty ask at once, and the store is asked %d times", len(asked))
	}
}

// If the store is unavailable, or holds a file that cannot be read, the error says so.
func TestErrors(t *testing.T) {
	l := newLab(t)
	l.part(camera, object(noon, "a.jpg"))
	l.told(camera).entry.Open[0].Parts = wire.PartNumbers{{1, 2}}
	l.part(mag, object(noon, "a.jpg"))
	l.told(mag).entry.Root = 7
	l.Put(wire.ManifestPartKey(site, camera, "2026-11-20", 1), []byte("hello"))
	l.told(camera).entry.Open = append([]wire.RootDay{{Day: "2026-11-20", Parts: wire.PartNumbers{{1, 1}}, Entries: 1, Dirs: []string{""}, LastPath: "z"}}, l.told(camera).entry.Open...)
	l.flush()
	c := l.catalog(func(cfg *Config) { cfg.Store = l.Store })
	l.ready(c)
	if d, err := c.Day(t.Context(), camera, wire.DayOf(noon)); err != nil || len(d.Records) != 1 {
		t.Errorf("a part is gone: %+v, %v", d, err)
	}
	if _, err := c.Day(t.Context(), camera, "2026-11-20"); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("no manifest: %v", err)
	}
	if _, err := c.Days(t.Context(), mag); !errors.Is(err, manifest.ErrMissing) {
		t.Errorf("a root is gone: %v", err)
	}
	if _, found := c.Latest(mag, ""); found {
		t.Error("without a root there is a latest")
	}
	// The root comes after the entry that speaks of it.
	root, err := wire.Root{Header: wire.RootHeader{Site: site, Instrument: mag, Number: 7}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	put := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() {
		put <- l.Store.Put(context.Background(), wire.RootKey(site, mag, 7), bytes.NewReader(root), int64(len(root)), objectstore.PutOptions{})
	})
	if days, err := c.Days(t.Context(), mag); err != nil || len(days) != 1 {
		t.Errorf("%d days, %v", len(days), err)
	}
	if err := <-put; err != nil {
		t.Error(err)
	}
}
