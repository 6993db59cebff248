// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/wire"
)

func (l *lab) indexBucket() jetstream.KeyValue {
	l.t.Helper()
	kv, err := l.js.CreateOrUpdateKeyValue(l.t.Context(), jetstream.KeyValueConfig{Bucket: wire.IndexBucket(l.site), History: 1, Storage: jetstream.FileStorage})
	if err != nil {
		l.t.Fatal(err)
	}
	return kv
}

func (l *lab) catalog() *catalog.Catalog {
	l.t.Helper()
	c := catalog.New(catalog.Config{Site: l.site, JetStream: l.js, Store: l.store, Log: l.config("reader").Log, Registerer: prometheus.NewRegistry()})
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	l.t.Cleanup(func() { cancel(); <-done })
	return c
}

// catalogued returns what a catalog says of an instrument: IDs and states.
func (l *lab) catalogued(c *catalog.Catalog, instrument string) []string {
	l.t.Helper()
	days, err := c.Days(l.t.Context(), instrument)
	if err != nil {
		l.t.Fatal(err)
	}
	var all []string
	for _, d := range days {
		day, err := c.Day(l.t.Context(), instrument, d.Day)
		if err != nil {
			l.t.Fatal(err)
		}
		for _, r := range day.Records {
			all = append(all, fmt.Sprintf("%s %s", r.ID, r.State))
		}
	}
	slices.Sort(all)
	return all
}

// manifested returns what the manifests themselves say.
func (l *lab) manifested(instrument string) []string {
	l.t.Helper()
	var all []string
	for _, r := range l.listed(instrument) {
		if r.State != wire.StateDuplicate {
			all = append(all, fmt.Sprintf("%s %s", r.ID, r.State))
		}
	}
	slices.Sort(all)
	return all
}

func (l *lab) index(instrument string) wire.IndexEntry {
	l.t.Helper()
	e, err := l.indexBucket().Get(l.t.Context(), instrument)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return wire.IndexEntry{}
	}
	if err != nil {
		l.t.Fatal(err)
	}
	entry, err := wire.Decode[wire.IndexEntry](e.Value())
	if err != nil {
		l.t.Fatal(err)
	}
	return entry
}

// Readers of a new Site need not wait until the first parts are closed: an empty archive is reported as such, and announced objects are
// reported at once.
func TestIndexOfNewSite(t *testing.T) {
	l := start(t).site(t, "thule")
	l.indexBucket()
	cfg := l.config("a")
	cfg.PartInterval = time.Hour
	l.run(cfg)
	c := l.catalog()
	l.await("the catalog answers", func() bool {
		tags, err := c.InstrumentTags(t.Context())
		return err == nil && len(tags) == 0
	})
	n := l.send(camera, time.Now().UTC(), "first frame")
	l.await("what is announced shows", func() bool {
		r, err := c.Find(t.Context(), camera, n.Published())
		return err == nil && r.ID == n.ID
	})
	if listed := l.manifested(camera); len(listed) > 0 {
		t.Errorf("it is in a closed part already: %v", listed)
	}
}

// Readers of the catalog find what gateways announce: at once, and when it is listed, superseded, retracted,
// compacted, and after another archivist came.
func TestIndex(t *testing.T) {
	l := start(t).site(t, "thule")
	l.indexBucket()
	now := time.Now().UTC().Truncate(time.Millisecond)
	old := now.AddDate(0, 0, -5)
	cfg := l.config("a")
	cfg.PartInterval = 500 * time.Millisecond
	cfg.CompactInterval, cfg.CompactGrace = 300*time.Millisecond, time.Hour
	stop := l.run(cfg)
	c := l.catalog()
	var sent []wire.Notice
	for i := range 5 {
		sent = append(sent, l.send(camera, now.Add(time.Duration(i)*time.Second), fmt.Sprint("frame ", i)))
		sent = append(sent, l.send(camera, old.Add(time.Duration(i)*time.Second), fmt.Sprint("old frame ", i)))
	}
	duplicate := l.send(camera, now.Add(time.Minute), "frame 0")
	// Before it is marked as a duplicate the duplicate shows for a moment.
	l.await("all are in the catalog, and the duplicate is not", func() bool {
		_, err := c.Find(t.Context(), camera, duplicate.Published())
		return len(l.keys(camera, wire.StateDuplicate)) == 1 && errors.Is(err, catalog.ErrNotFound) &&
			len(l.catalogued(c, camera)) == 10 && len(l.index(camera).Open)+l.index(camera).Root > 0
	})
	for _, n := range sent {
		if r, err := c.Find(t.Context(), camera, n.Published()); err != nil || r.ID != n.ID {
			t.Errorf("%s: %s, %v", n.ID, r.ID, err)
		}
	}
	l.await("the old day is compacted, and the index says so", func() bool {
		days, err := c.Days(t.Context(), camera)
		return err == nil && len(days) == 2 && days[0].Version > 0
	})
	l.await("the closed day is in a root", func() bool { return l.index(camera).Root > 0 })

	// Versions of one name; the first is of another day.
	named := func(version int, at time.Time) wire.Notice {
		n := l.notice(mag, object{at, fmt.Sprint("version ", version)})
		n.ID = wire.NamedKey(l.site, mag, "latest.txt", version)
		n.Key, n.Name = n.ID, "latest.txt"
		if version > 1 {
			n.Version, n.Supersedes = version, wire.NamedKey(l.site, mag, "latest.txt", version-1)
		}
		l.putNamed(n, fmt.Sprint("version ", version))
		l.announce(n)
		return n
	}
	named(1, old)
	l.await("the first version", func() bool { return len(l.manifested(mag)) == 1 })
	named(2, now)
	third := named(3, now.Add(time.Second))
	superseded := sorted(wire.NamedKey(l.site, mag, "latest.txt", 1), wire.NamedKey(l.site, mag, "latest.txt", 2))
	// Each day has a part of its own, and one of them is closed first.
	l.await("all three versions, two of them superseded", func() bool {
		return len(l.manifested(mag)) == 3 && slices.Equal(superseded, l.keys(mag, wire.StateSuperseded))
	})
	l.await("the catalog has all three, and the third is current", func() bool {
		r, err := c.Find(t.Context(), mag, "n/latest.txt")
		all, other := c.Versions(t.Context(), mag, "n/latest.txt")
		return err == nil && r.ID == third.ID && other == nil && len(all) == 3
	})

	// Retracted, by another archivist.
	stop()
	l.run(l.config("b"))
	l.ask(sent[2], wire.StateRetracted, "dark")
	strange := sent[2]
	strange.ID += "x"
	l.ask(strange, wire.StateRetracted, "dark")
	l.await("it is retracted", func() bool { return len(l.keys(camera, wire.StateRetracted)) == 1 })
	var r wire.Record
	var err error
	l.await("the catalog says so", func() bool {
		r, err = c.Find(t.Context(), camera, sent[2].Published())
		return err != nil || r.State == wire.StateRetracted
	})
	if err != nil || r.State != wire.StateRetracted || r.Reason != "dark" || r.RetractedAt == nil || r.Size != sent[2].Size {
		t.Errorf("%+v, %v", r, err)
	}
	for _, instrument := range []string{camera, mag} {
		l.await("the catalog of "+instrument+" is what the manifests say", func() bool {
			return cmp.Equal(l.manifested(instrument), l.catalogued(c, instrument))
		})
	}
	for _, instrument := range []string{camera, mag} {
		var days []wire.RootDay
		for day, err := range manifest.Days(t.Context(), l.store, l.site, instrument) {
			if err != nil {
				t.Fatal(err)
			}
			d, err := manifest.Summarize(t.Context(), l.store, l.site, instrument, day)
			if err != nil {
				t.Fatal(err)
			}
			days = append(days, d)
		}
		l.await("the index of "+instrument+" is what the manifests say", func() bool {
			got, err := c.Days(t.Context(), instrument)
			return err == nil && cmp.Equal(days, got)
		})
	}

	// Lost, and recreated.
	if err := l.js.DeleteKeyValue(t.Context(), wire.IndexBucket(l.site)); err != nil {
		t.Fatal(err)
	}
	l.indexBucket()
	last := l.send(camera, now.Add(time.Hour), "the last")
	l.await("the index is made anew", func() bool { return l.index(camera).Root > 0 && len(l.index(mag).Open)+l.index(mag).Root > 0 })
	l.await("the catalog goes on", func() bool {
		r, err := c.Find(t.Context(), camera, last.Published())
		return err == nil && r.ID == last.ID && cmp.Equal(l.manifested(camera), l.catalogued(c, camera))
	})
}
