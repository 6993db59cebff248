// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/site"
)

// A run says to an origin that waits for the hub what is here, of days that it looked at before the origin did, too; and what was lost.
func TestConfirms(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	store := h.startGateway()
	want := wire.Totals{}
	for _, path := range []string{"a.jpg", "b.jpg"} {
		r := h.Put(archivetest.Camera, path, path, func(r *wire.Record) { r.ReceivedAt = storm })
		h.Wait(r)
		want.AddCopy(&r)
	}
	// Reports and ledger are the origin's.
	kv := func(bucket string) jetstream.KeyValue {
		t.Helper()
		kv, err := h.JetStream.KeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		return kv
	}
	ledger, reports := kv(wire.LedgerBucket(archivetest.Site)), kv(wire.StatusBucket(archivetest.Site))
	has := func() (wire.Totals, bool) {
		t.Helper()
		e, err := ledger.Get(t.Context(), wire.LedgerKey(archivetest.Camera, wire.DayOf(storm), wire.StepPulled, archivetest.Reader))
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return wire.Totals{}, false
		}
		if err != nil {
			t.Fatal(err)
		}
		entry, err := wire.Decode[wire.LedgerEntry](e.Value())
		if err != nil {
			t.Fatal(err)
		}
		return entry.Sum(), true
	}
	report := func() wire.PullerStatus {
		t.Helper()
		e, err := reports.Get(t.Context(), wire.PullerStatusKey(archivetest.Reader))
		if err != nil {
			t.Fatal(err)
		}
		is, err := wire.Decode[wire.PullerStatus](e.Value())
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	u, err := url.Parse(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	source := https.New(https.Config{URL: u, Connections: 2, Token: archivetest.Token})
	defer source.Close()
	run := func(change ...func(*site.Config)) error {
		t.Helper()
		_, err := h.pull(h.URL, append(change, func(c *site.Config) { c.Store, c.Source = store, source })...)
		return err
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if _, said := has(); said || !strings.Contains(h.log.String(), "spec.pulledBy") {
		t.Errorf("a Site that waits for nobody has been told; the log: %s", h.log.String())
	}
	h.records = h.announced()
	h.list(store)

	s := *h.Snapshot()
	reader := s.Readers[archivetest.Reader]
	reader.Pulls = &wire.PullsEntry{HoldMillis: 1}
	s.Readers = map[string]wire.ReaderEntry{archivetest.Reader: reader}
	h.Set(&s)
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if is, _ := has(); !is.SameObjects(want) || is.Objects != 2 {
		t.Errorf("the origin knows of %+v, and %+v is here", is, want)
	}
	if is := report(); is.VerifiedTo.IsZero() || is.Owed.Objects != 0 || !is.ComparedAt.IsZero() {
		t.Errorf("reported: %+v", is)
	}
	verifies := func(c *site.Config) { c.VerifyOnly = true }
	if err := run(verifies); err != nil {
		t.Fatal(err)
	}
	if report().ComparedAt.IsZero() {
		t.Error("a run that compared all does not say so")
	}
	if err := store.Delete(t.Context(), h.records[0].Key); err != nil {
		t.Fatal(err)
	}
	if err := run(verifies); !errors.Is(err, push.ErrOwed) {
		t.Errorf("a run that misses an object: %v", err)
	}
	if is, _ := has(); is.Objects != 0 || !report().ComparedAt.IsZero() || !report().VerifiedTo.IsZero() || report().Owed.Objects != 1 {
		t.Errorf("the origin relies on %+v, and %+v is reported", is, report())
	}
	// The next run brings it back, and confirms nothing: it did not look for the rest. The one after it confirms all.
	c := h.Put(archivetest.Camera, "c.jpg", "c.jpg", func(r *wire.Record) { r.ReceivedAt = storm.Add(time.Second) })
	h.Wait(c)
	want.AddCopy(&c)
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if is, _ := has(); is.Objects != 0 || !report().VerifiedTo.IsZero() {
		t.Errorf("a run that did not look at all confirms %+v and reports %+v", is, report())
	}
	if _, err := store.Head(t.Context(), h.records[0].Key); err != nil {
		t.Errorf("what a run with --verify-only found lost is not brought back by the next one: %v", err)
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if is, _ := has(); !is.SameObjects(want) || report().VerifiedTo.IsZero() {
		t.Errorf("once it is here again, the origin knows of %+v, and %+v is reported", is, report())
	}
	if err := run(func(c *site.Config) { c.Force = true }); err != nil {
		t.Fatal(err)
	}
	if is, _ := has(); !is.SameObjects(want) || report().ComparedAt.IsZero() {
		t.Errorf("once it is here again, the origin knows of %+v", is)
	}

	// A day whose manifests cannot be read is not confirmed any more, until they can be.
	h.damaged = wire.DayOf(storm)
	for what, change := range map[string]func(*site.Config){"verifies": verifies, "is scheduled": func(*site.Config) {}} {
		if what == "is scheduled" { // in whatever order: a run that verifies has looked first
			if err := run(verifies); !errors.Is(err, push.ErrOwed) {
				t.Errorf("a run that verifies an unreadable day: %v", err)
			}
		}
		if err := run(change); !errors.Is(err, push.ErrOwed) {
			t.Errorf("a run that %s, and cannot read a day: %v", what, err)
		}
		if is, _ := has(); is.Objects != 0 || !report().ComparedAt.IsZero() || !report().VerifiedTo.IsZero() {
			t.Errorf("after a run that %s the origin relies on %+v, and %+v is reported", what, is, report())
		}
	}
	h.damaged = ""
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if is, _ := has(); !is.SameObjects(want) {
		t.Errorf("once the day can be read, the origin knows of %+v", is)
	}

	// A hub that was installed again knows of nothing here. Its earlier confirmations do not count, also if its first run does not come far.
	cursors := kv(wire.CursorBucket(hubSite))
	if err := cursors.Delete(t.Context(), wire.MirrorCursorKey("north", "pull-root")); err != nil {
		t.Fatal(err)
	}
	stops := errors.New("the run is stopped")
	if err := run(func(c *site.Config) { c.Pause = func(context.Context) error { return stops } }); !errors.Is(err, stops) {
		t.Fatalf("the run ends with %v", err)
	}
	if is, _ := has(); is.Objects != 0 || !report().ComparedAt.IsZero() {
		t.Errorf("the origin relies on %+v, and %+v is reported", is, report())
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if is, _ := has(); !is.SameObjects(want) {
		t.Errorf("in the end the origin knows of %+v", is)
	}

	// An origin that waits no more costs a line of the log, and no run.
	reader.Pulls = nil
	s.Readers = map[string]wire.ReaderEntry{archivetest.Reader: reader}
	changed := s
	h.Set(&changed)
	if err := run(); err != nil {
		t.Error(err)
	}
}
