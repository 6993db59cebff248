// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/liar"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/site"
)

// lieOutcome is what a run does that an origin lies to.
type lieOutcome struct {
	// reason of the run; empty: it succeeds.
	reason string
	// comes: the new object is stored. back and clock: the run reports that the origin went back, or that its clock is wrong.
	comes, back, clock bool
}

var lieOutcomes = map[liar.Mode]lieOutcome{
	liar.Portal:         {reason: wire.MirrorReasonProtocol},
	liar.BarePortal:     {reason: wire.MirrorReasonProtocol},
	liar.Redirect:       {reason: wire.MirrorReasonProtocol},
	liar.Cut:            {reason: wire.MirrorReasonUnreachable},
	liar.OtherBytes:     {reason: wire.MirrorReasonProtocol},
	liar.PageForObjects: {reason: wire.MirrorReasonProtocol},
	liar.EndsEarly:      {reason: wire.MirrorReasonProtocol},
	liar.NoEnd:          {reason: wire.MirrorReasonProtocol},
	liar.WrongDigest:    {reason: wire.MirrorReasonDigestMismatch},
	liar.OtherObject:    {reason: wire.MirrorReasonDigestMismatch, comes: true, back: true},
	liar.ShrinkingDay:   {comes: true, back: true},
	liar.EmptyDay:       {back: true},
	liar.NoDays:         {back: true},
	liar.NoInstruments:  {reason: wire.MirrorReasonProtocol}, // it answers that it has the instrument
	liar.Absent:         {reason: wire.MirrorReasonProtocol}, // it lists the instrument
	liar.OtherSite:      {reason: wire.MirrorReasonProtocol},
	liar.OtherSiteIDs:   {reason: wire.MirrorReasonProtocol, back: true},
	liar.DuplicateID:    {reason: wire.MirrorReasonProtocol, comes: true},
	liar.DuplicatePath:  {reason: wire.MirrorReasonProtocol, comes: true},
	liar.Gigantic:       {reason: wire.MirrorReasonProtocol},
	liar.Huge:           {reason: wire.MirrorReasonLocal},
	liar.Negative:       {reason: wire.MirrorReasonProtocol},
	liar.Outside:        {reason: wire.MirrorReasonProtocol},
	liar.Absolute:       {reason: wire.MirrorReasonProtocol},
	liar.Dotted:         {reason: wire.MirrorReasonProtocol},
	liar.AllPurged:      {reason: wire.MirrorReasonSafetyStop},
	liar.YearAhead:      {comes: true, clock: true},
	liar.YearBehind:     {comes: true, clock: true},
	liar.NoTime:         {reason: wire.MirrorReasonProtocol},
	liar.OldCopy:        {comes: true, clock: true},
}

// However an origin lies, the hub stores no bytes but those that were listed with their digest, has nothing go, confirms nothing that it does
// not have, and says what is wrong. Once the origin is honest, the next run brings all.
func TestLyingOrigin(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	store := h.startGateway()
	h.awaits()
	ledger, err := h.JetStream.KeyValue(t.Context(), wire.LedgerBucket(archivetest.Site))
	if err != nil {
		t.Fatal(err)
	}
	confirmed := func() int64 {
		key := wire.LedgerKey(archivetest.Camera, wire.DayOf(storm), wire.StepPulled, archivetest.Reader)
		e, _, err := stream.Load[wire.LedgerEntry](t.Context(), ledger, key)
		if err != nil {
			t.Fatal(err)
		}
		return int64(e.Sum().Objects)
	}
	index := liar.BeforeIndex(t, h.URL)
	index.Held = "held.txt"
	h.has(index.Held, storm)
	u, err := url.Parse(index.URL)
	if err != nil {
		t.Fatal(err)
	}
	run := func(change ...func(*site.Config)) (*push.Progress, error) {
		progress := &push.Progress{}
		source := https.New(https.Config{URL: u, Connections: 2, Token: archivetest.Token, Patience: https.Patience{Tries: 2}})
		defer source.Close()
		_, err := h.pull(index.URL, append(change, func(c *site.Config) { c.Store, c.Source, c.Progress, c.ScratchSize = store, source, progress, 1<<30 })...)
		return progress, err
	}
	for i, mode := range liar.IndexModes {
		want, known := lieOutcomes[mode]
		if !known {
			t.Errorf("%s: no outcome is known", mode)
			continue
		}
		if err := h.forget(); err != nil {
			t.Fatal(err)
		}
		if _, err := run(); err != nil {
			t.Fatalf("before %s: %v", mode, err)
		}
		index.New = fmt.Sprintf("new-%d.txt", i)
		r := h.Put(archivetest.Camera, index.New, index.New, func(r *wire.Record) { r.ReceivedAt = storm.Add(time.Duration(i) * time.Second) })
		h.Wait(r)

		index.Set(mode)
		p, err := run()
		got := lieOutcome{back: p.WentBack() != nil, clock: p.OriginClock() != ""}
		if problem := (*push.Problem)(nil); errors.As(err, &problem) {
			got.reason = problem.Reason
		} else if err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		_, missing := store.Head(t.Context(), pulledAs(r).Key)
		got.comes = !errors.Is(missing, objectstore.ErrNotFound)
		if got != want {
			t.Errorf("%s: %+v, want %+v: %v", mode, got, want, err)
		}
		if asked := h.requests(); len(asked) > 0 {
			t.Errorf("%s: the archivist is asked for %v", mode, asked)
		}
		if n := confirmed(); n > int64(len(h.records)) && !got.comes || n > int64(len(h.records))+1 {
			t.Errorf("%s: %d objects are confirmed, and %d are here", mode, n, len(h.records))
		}

		index.Set("")
		if _, err := run(); err != nil {
			t.Errorf("after %s: %v", mode, err)
		}
		if body := stored(t, store, r); body != index.New {
			t.Errorf("after %s: the new object has %q", mode, body)
		}
		if n := confirmed(); n != int64(len(h.records))+1 {
			t.Errorf("after %s: %d objects are confirmed, and %d are here", mode, n, len(h.records)+1)
		}
		h.records = append(h.records, pulledAs(r))
	}
	objects := 0
	for info, err := range store.List(t.Context(), "o/", "") {
		if objects++; err != nil || strings.Contains(info.Key, "outside") {
			t.Errorf("%s, %v", info.Key, err)
		}
	}
	if objects != len(h.records)-1 { // held.txt is in another bucket
		t.Errorf("%d objects are stored, want %d", objects, len(h.records)-1)
	}
}

// awaits has the origin wait for the Reader, who pulls.
func (h *hub) awaits() {
	s := *h.Snapshot()
	reader := s.Readers[archivetest.Reader]
	reader.Pulls = &wire.PullsEntry{HoldMillis: 1}
	s.Readers = map[string]wire.ReaderEntry{archivetest.Reader: reader}
	h.Set(&s)
}

// forget has the hub know nothing of its origin but what it lists.
func (h *hub) forget() error {
	kv, err := h.JetStream.KeyValue(h.Context(), wire.CursorBucket(hubSite))
	if err != nil {
		return err
	}
	keys, err := kv.Keys(h.Context())
	if errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil
	}
	for _, key := range keys {
		err = errors.Join(err, kv.Delete(h.Context(), key))
	}
	return err
}
