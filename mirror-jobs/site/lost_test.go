// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/site"
)

// Objects that the store here lost, small and large, count as here for a run by the schedule. One that verifies tells of them, and
// the next one brings them back: with the digests that they had, and counted once in the ledger.
func TestLostObject(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	store := h.startGateway()
	with := func(change ...func(*site.Config)) error {
		t.Helper()
		_, err := h.pull(h.URL, append(change, func(c *site.Config) { c.Store = store })...)
		return err
	}
	objects := map[string]string{"kept.jpg": "kept", "small.jpg": "small", "large.fits": strings.Repeat("l", 9<<20), "pack.jpg": "pack"}
	for path, body := range objects {
		h.Wait(h.Put(archivetest.Camera, path, body, func(r *wire.Record) { r.ReceivedAt = storm }))
	}
	if err := with(); err != nil {
		t.Fatal(err)
	}
	h.records = h.announced()
	h.list(store)
	if err := with(); err != nil {
		t.Fatal(err)
	}
	for _, r := range h.records {
		if r.Path == "small.jpg" || r.Path == "large.fits" {
			if err := store.Delete(t.Context(), r.Key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := with(); err != nil {
		t.Errorf("a run that looks at lists alone: %v", err)
	}
	if err := with(func(c *site.Config) { c.VerifyOnly = true }); !errors.Is(err, push.ErrOwed) || !strings.Contains(err.Error(), "2 objects") ||
		!strings.Contains(err.Error(), `"small.jpg" of `) && !strings.Contains(err.Error(), `"large.fits" of `) || !strings.Contains(err.Error(), "the next run without --verify-only") || strings.Contains(err.Error(), "to the partner") {
		t.Errorf("a run that verifies: %v", err)
	}
	if err := with(); err != nil {
		t.Error(err)
	}
	for _, r := range h.records {
		n, err := store.Head(t.Context(), r.Key)
		if err != nil {
			t.Errorf("%s after the next run: %v", r.Path, err)
			continue
		}
		if is, err := wire.NoticeFromMetadata(r.Key, n.Metadata); err != nil || is.Digest != r.Digest || n.Size != int64(len(objects[r.Path])) {
			t.Errorf("%s after the next run is %+v, %v", r.Path, is, err)
		}
	}
	if err := with(func(c *site.Config) { c.VerifyOnly = true }); err != nil {
		t.Errorf("a run that verifies after that: %v", err)
	}
	if n := len(h.announced()); n != len(objects) {
		t.Errorf("%d objects are announced %d times", len(objects), n)
	}
	h.Until("the ledger counts what came again as duplicates", func() bool {
		is := h.received()
		if is.Objects > uint64(len(objects)) {
			t.Fatalf("the ledger counts %d of %d objects", is.Objects, len(objects))
		}
		return is.Objects == uint64(len(objects)) && is.Unfinished[wire.CauseDuplicate] == 2
	})

	for i, r := range h.records {
		if r.Path == "pack.jpg" { // its pack is lost
			packed := *r
			packed.Key, packed.Offset, packed.Length = wire.PackKey(hubSite, storm, wire.ArchivistWriter, "0123456789abcdef", 1), 512, packed.Size
			h.records[i] = &packed
		}
	}
	if err := with(func(c *site.Config) { c.Force = true }); !errors.Is(err, push.ErrOwed) || !strings.Contains(err.Error(), "1 were lost here with their packs") {
		t.Errorf("a pack is lost: %v", err)
	}
}

// A run with force that fails before it has looked at all is made again by the next run, which is not forced.
func TestForcedRunIsMadeAgain(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	store := h.startGateway()
	with := func(change ...func(*site.Config)) error {
		t.Helper()
		_, err := h.pull(h.URL, append(change, func(c *site.Config) { c.Store = store })...)
		return err
	}
	h.Wait(h.Put(archivetest.Camera, "a.jpg", "a", func(r *wire.Record) { r.ReceivedAt = storm }))
	if err := with(); err != nil {
		t.Fatal(err)
	}
	h.records = h.announced()
	h.list(store)
	key := h.records[0].Key
	if err := store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if err := with(); err != nil {
		t.Errorf("a run that looks at lists alone: %v", err)
	}
	stops := errors.New("the run is stopped")
	if err := with(func(c *site.Config) { c.Force, c.Pause = true, func(context.Context) error { return stops } }); !errors.Is(err, stops) {
		t.Fatalf("the run ends with %v", err)
	}
	if err := with(); err != nil {
		t.Errorf("the run after it: %v", err)
	}
	if _, err := store.Head(t.Context(), key); err != nil {
		t.Errorf("the object that was lost: %v", err)
	}
	if err := store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if err := with(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Head(t.Context(), key); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("a run after one that looked at all looks at all again: %v", err)
	}
}

// announced are the records that gateways of the hub announced.
func (h *hub) announced() (all []*wire.Record) {
	h.Helper()
	s, err := h.JetStream.Stream(h.Context(), wire.NoticeStream(hubSite))
	if err != nil {
		h.Fatal(err)
	}
	for next := uint64(1); ; {
		m, err := s.GetMsg(h.Context(), next, jetstream.WithGetMsgSubject(wire.MirroredSubject(hubSite, guest)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return all
		}
		if err != nil {
			h.Fatal(err)
		}
		n, err := wire.Decode[wire.Notice](m.Data)
		if err != nil {
			h.Fatal(err)
		}
		all, next = append(all, &n.Record), m.Sequence+1
	}
}

// list writes the manifest of what is here into the hub's bucket, as its archivist does.
func (h *hub) list(store objectstore.Store) {
	h.Helper()
	m := wire.Manifest{Header: wire.ManifestHeader{Site: hubSite, Instrument: guest, Day: wire.DayOf(storm), Writer: "archivist-0", Incarnation: "one"}}
	for _, r := range h.records {
		m.Records = append(m.Records, *r)
	}
	data, err := m.Encode()
	if err == nil {
		err = store.Put(h.Context(), wire.ManifestPartKey(hubSite, guest, wire.DayOf(storm), 1), bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{})
	}
	if err != nil {
		h.Fatal(err)
	}
}

// received is what the hub's ledger counts of the day.
func (h *hub) received() (sum wire.Totals) {
	h.Helper()
	kv, err := h.JetStream.KeyValue(h.Context(), wire.LedgerBucket(hubSite))
	if err != nil {
		h.Fatal(err)
	}
	e, err := kv.Get(h.Context(), wire.LedgerKey(guest, wire.DayOf(storm), wire.StepReceived, "north-0"))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return sum
	}
	if err != nil {
		h.Fatal(err)
	}
	entry, err := wire.Decode[wire.LedgerEntry](e.Value())
	if err != nil {
		h.Fatal(err)
	}
	return entry.Sum()
}

// An object that the store here lost, and that the origin does not give any more, is named by each run once one has looked, and no run
// says that all is here, until the object is restored.
func TestLostForGood(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	store := h.startGateway()
	with := func(change ...func(*site.Config)) error {
		t.Helper()
		_, err := h.pull(h.URL, append(change, func(c *site.Config) { c.Store = store })...)
		return err
	}
	verifies, forced := func(c *site.Config) { c.VerifyOnly = true }, func(c *site.Config) { c.Force = true }
	r := h.Put(archivetest.Camera, "last.jpg", "last", func(r *wire.Record) { r.ReceivedAt = storm })
	h.Wait(r)
	if err := with(); err != nil {
		t.Fatal(err)
	}
	h.records = h.announced()
	h.list(store)
	r.Expire("expired: kept for 48h0m0s", storm.AddDate(0, 1, 0))
	h.lists(r)
	if err := with(); err != nil {
		t.Fatal(err)
	}
	if err := with(verifies); err != nil {
		t.Errorf("all is here: %v", err)
	}
	key := h.records[0].Key
	body, info, err := store.Get(t.Context(), key, objectstore.All)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close(), store.Delete(t.Context(), key)); err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func() error{"verifies": func() error { return with(verifies) }, "is forced": func() error { return with(forced) }} {
		err := run()
		var p *push.Problem
		if !errors.As(err, &p) || p.Reason != wire.MirrorReasonStore || !strings.Contains(err.Error(), "lost 1 objects") || !strings.Contains(err.Error(), `"last.jpg"`) ||
			!strings.Contains(err.Error(), "substorm archive verify") || strings.Contains(err.Error(), "--force") {
			t.Errorf("a run that %s: %v", name, err)
		}
		if err := with(); !errors.As(err, &p) || p.Reason != wire.MirrorReasonStore {
			t.Errorf("a run by the schedule after one that %s: %v", name, err)
		}
	}
	if err := store.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{Metadata: info.Metadata}); err != nil {
		t.Fatal(err)
	}
	h.Wait(h.Put(archivetest.Camera, "new.jpg", "new", func(r *wire.Record) { r.ReceivedAt = storm.Add(time.Hour) })) // a Site that receives is never all pulled
	if err := with(verifies); !errors.Is(err, push.ErrOwed) || strings.Contains(err.Error(), "last.jpg") {
		t.Errorf("it is restored, and another object is to come: %v", err)
	}
	if err := with(); err != nil {
		t.Errorf("a run by the schedule after that: %v", err)
	}
}

// A day that is in doubt, and that the origin does not list any more, is looked at by each run until what was lost of it is restored.
func TestLostAndUnlisted(t *testing.T) {
	t.Parallel()
	h, again := newHub(t), newHub(t)
	store := h.startGateway()
	with := func(url string, change ...func(*site.Config)) error {
		t.Helper()
		_, err := h.pull(url, append(change, func(c *site.Config) { c.Store = store })...)
		return err
	}
	h.Wait(h.Put(archivetest.Camera, "last.jpg", "last", func(r *wire.Record) { r.ReceivedAt = storm }))
	if err := with(h.URL); err != nil {
		t.Fatal(err)
	}
	h.records = h.announced()
	h.list(store)
	key := h.records[0].Key
	body, info, err := store.Get(t.Context(), key, objectstore.All)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close(), store.Delete(t.Context(), key)); err != nil {
		t.Fatal(err)
	}
	if err := with(h.URL, func(c *site.Config) { c.VerifyOnly = true }); !errors.Is(err, push.ErrOwed) {
		t.Errorf("a run that verifies: %v", err)
	}
	again.Wait(again.Put(archivetest.Camera, "other.jpg", "other", func(r *wire.Record) { r.ReceivedAt = storm.AddDate(0, 0, 2) }))
	for _, change := range []func(*site.Config){func(*site.Config) {}, func(c *site.Config) { c.VerifyOnly = true }, func(*site.Config) {}} {
		var p *push.Problem
		if err := with(again.URL, change); !errors.As(err, &p) || p.Reason != wire.MirrorReasonStore || !strings.Contains(err.Error(), "lost 1 objects") {
			t.Errorf("the origin does not list the day any more: %v", err)
		}
	}
	if err := store.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{Metadata: info.Metadata}); err != nil {
		t.Fatal(err)
	}
	if err := with(again.URL); err != nil {
		t.Errorf("it is restored: %v", err)
	}
}
