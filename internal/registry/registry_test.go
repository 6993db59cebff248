// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/access"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

func put(t *testing.T, kv jetstream.KeyValue, key string, record any) {
	t.Helper()
	b, err := wire.Encode(record)
	if err == nil {
		_, err = kv.Put(t.Context(), key, b)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, r *Registry, what string, is func(*Snapshot) bool) {
	t.Helper()
	deadline := time.After(testenv.Patience)
	for {
		s, changed := r.Watch()
		if is(s) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("never: %s; revision %d, problems %v", what, s.Revision, s.Problems)
		}
	}
}

func feed(name string, revision int64, instruments ...string) wire.FeedEntry {
	return wire.FeedEntry{Feed: name, Revision: revision, Notices: "NOTICE_hub", Telemetry: "OBS_hub", Instruments: instruments}
}

func consumer(name, feed string, revision int64) wire.ConsumerEntry {
	return wire.ConsumerEntry{Consumer: name, Feed: feed, Revision: revision, Flow: wire.FlowEntry{Mode: wire.FlowAll}, Delivery: wire.DeliveryWebSocket}
}

// New entries apply at once, removed ones are gone when the registry is complete again,
// and while NATS is away the entries that were last seen apply.
func TestFollow(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	testenv.CreateSite(t, js, "hub")
	kv, err := js.KeyValue(t.Context(), wire.RegistryBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	r := New()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Follow(ctx, js, "hub", slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() { cancel(); <-done })

	put(t, kv, wire.RegistryFeedKey("f"), feed("f", 1, "mag-1"))
	put(t, kv, wire.RegistryConsumerKey("c"), consumer("c", "f", 1))
	await(t, r, "c before the marker", func(s *Snapshot) bool { _, ok := s.Consumers["c"]; return ok && s.Revision == 0 })
	put(t, kv, wire.RegistryReaderKey("r"), wire.ReaderEntry{Reader: "r", Revision: 1})
	put(t, kv, wire.RegistryInstrumentKey("mag-1"), wire.InstrumentEntry{Instrument: "mag-1", Revision: 1})
	put(t, kv, wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 1, Count: 1, Feeds: 1, Consumers: 1, Readers: 1})
	await(t, r, "revision 1", func(s *Snapshot) bool {
		return s.Revision == 1 && len(s.Feeds) == 1 && len(s.Consumers) == 1 && len(s.Readers) == 1 && len(s.Instruments) == 1
	})

	// A newer format is refused, said, and leaves what was there; so does a removal
	// that no marker confirms.
	if _, err := kv.Put(t.Context(), wire.RegistryFeedKey("f"), []byte(`{"format":2,"feed":7}`)); err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), wire.RegistryConsumerKey("c")); err != nil {
		t.Fatal(err)
	}
	await(t, r, "the problem", func(s *Snapshot) bool {
		return s.Problems[wire.RegistryFeedKey("f")] != "" && len(s.Feeds["f"].Instruments) == 1 && len(s.Consumers) == 1
	})
	server.Kill()
	if s := r.Snapshot(); len(s.Feeds) != 1 || len(s.Consumers) != 1 {
		t.Fatalf("without NATS: %d feeds, %d consumers", len(s.Feeds), len(s.Consumers))
	}
	server.Start()
	put(t, kv, wire.RegistryFeedKey("f"), feed("f", 2, "mag-1", "mag-2"))
	put(t, kv, wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 2, Count: 1, Feeds: 1, Readers: 1})
	await(t, r, "revision 2 without c", func(s *Snapshot) bool {
		return s.Revision == 2 && len(s.Consumers) == 0 && len(s.Feeds["f"].Instruments) == 2 && len(s.Problems) == 0
	})
}

// A reader of the registry on a replica that is behind sees what that replica has, and knows
// that it may not be all.
func TestLiveOnReplicaBehind(t *testing.T) {
	server := testenv.NATS(t, testenv.NATSOptions{})
	js := server.JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: wire.RegistryBucket("hub"), History: 5})
	if err != nil {
		t.Fatal(err)
	}
	write := func(revision int64, hold bool) {
		t.Helper()
		put(t, kv, wire.RegistryInstrumentKey("camera"), wire.InstrumentEntry{Instrument: "camera", Revision: revision, LegalHold: hold})
		put(t, kv, wire.RegistryCompleteKey, wire.RegistryComplete{Revision: revision, Count: 1})
	}
	write(1, false)
	behind := &testenv.Behind{JetStream: js, Revision: 2, CatchUp: make(chan struct{})}
	write(2, true)
	asked, err := js.Conn().SubscribeSync("$JS.API.STREAM.MSG.GET.KV_" + wire.RegistryBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	r := New()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.FollowNewest(ctx, behind, "hub", slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() { cancel(); <-done })
	await(t, r, "revision 1", func(s *Snapshot) bool { return s.Revision == 1 && !s.Instruments["camera"].LegalHold })
	for range 2 { // with the second question the first is answered
		if _, err := asked.NextMsg(testenv.Patience); err != nil {
			t.Fatalf("the leader is not asked what it holds: %v", err)
		}
	}
	if r.Live() {
		t.Error("nobody saw the legal hold, and the registry counts as that of now")
	}
	close(behind.CatchUp)
	await(t, r, "the hold", func(s *Snapshot) bool { return s.Revision == 2 && s.Instruments["camera"].LegalHold })
	testenv.Await(t, "the registry counts as that of now", r.Live)
}

// The last known state of an instrument stays in force if its entry cannot be read any more, and is not presented as the registry's
// content.
func TestUnread(t *testing.T) {
	b := NewBucket(time.Now())
	take := func(key string, record any) {
		t.Helper()
		value, err := wire.Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		b.Take(key, value, true)
	}
	key := wire.RegistryInstrumentKey("camera")
	take(key, wire.InstrumentEntry{Instrument: "camera", Revision: 1})
	take(wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 1, Count: 1})
	s := Resolve(newSnapshot(), b)
	if s.Unread("camera") || s.Unread("other") {
		t.Error("what can be read, and what there is not, cannot be read")
	}
	b.Take(key, []byte(`{"format":99,"instrument":"camera","revision":2,"legalHold":true}`), true)
	take(wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 2, Count: 1})
	s = Resolve(s, b)
	if _, known := s.Instruments["camera"]; !known || !s.Complete || !s.Unread("camera") {
		t.Errorf("known %v, complete %v, unread %v; want all", known, s.Complete, s.Unread("camera"))
	}
	take(key, wire.InstrumentEntry{Instrument: "camera", Revision: 3, LegalHold: true})
	if s = Resolve(s, b); s.Unread("camera") || !s.Instruments["camera"].LegalHold {
		t.Error("an entry that can be read again is not taken")
	}
}

func TestSelect(t *testing.T) {
	s := newSnapshot()
	f := feed("f", 1, "mag-1", "mag-2", "cam-1")
	f.Channels, f.Live = []string{"raw", "fast"}, wire.AccessAuthenticated
	c := consumer("c", "f", 1)
	c.Instruments, c.Channels, c.NoNotices = []string{"mag-2", "cam-1", "elsewhere"}, []string{"fast", "slow"}, true
	s.Feeds["f"], s.Consumers["c"], s.Consumers["all"], s.Consumers["lost"] = f, c, consumer("all", "f", 1), consumer("lost", "gone", 1)
	s.Instruments["mag-2"] = wire.InstrumentEntry{Access: &wire.AccessEntry{Live: wire.AccessPublic}}
	s.Instruments["cam-1"] = wire.InstrumentEntry{}
	got, err := s.Select("c")
	if err != nil || len(got.Instruments) != 2 || !got.Instruments["mag-2"] || len(got.Channels) != 1 || !got.Channels["fast"] || got.Notices != "" || got.Telemetry != "OBS_hub" {
		t.Errorf("c selects %+v, %v", got, err)
	}
	if got, err = s.Select("all"); err != nil || len(got.Instruments) != 3 || len(got.Channels) != 2 || got.Notices != "NOTICE_hub" {
		t.Errorf("all selects %+v, %v", got, err)
	}
	if _, err = s.Select("nobody"); !errors.Is(err, ErrNoConsumer) {
		t.Error(err)
	}
	if _, err = s.Select("lost"); !errors.Is(err, ErrNoFeed) {
		t.Error(err)
	}
	now := time.Now()
	for instrument, want := range map[string]access.Verdict{"mag-2": access.NeedsReader, "cam-1": access.NeedsReader, "mag-1": access.Hidden} {
		if got := s.Decide(f, access.Reader{}, instrument, now, now); got != want {
			t.Errorf("%s for an anonymous reader: %d, want %d", instrument, got, want)
		}
	}
	if got := s.Decide(f, access.SiteReader("c"), "cam-1", now, now); got != access.Granted {
		t.Errorf("for a reader: %d", got)
	}
}

// A Feed of all the Site's instruments names none: each snapshot has those of its registry.
func TestFeedOfAllInstruments(t *testing.T) {
	b := NewBucket(time.Time{})
	entry := func(key string, record any) {
		raw, err := wire.Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		b.Take(key, raw, true)
	}
	instrument := func(name string, revision int64) {
		entry(wire.RegistryInstrumentKey(name), wire.InstrumentEntry{Instrument: name, Revision: revision})
	}
	entry(wire.RegistryFeedKey("all"), feed("all", 1, wire.AllInstruments, wire.LeafInstruments("north")))
	entry(wire.RegistryFeedKey("one"), feed("one", 1, "mag-2"))
	instrument("mag-2", 1)
	entry(wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 1, Count: 1, Feeds: 2})
	first := Resolve(newSnapshot(), b)
	instrument("mag-1", 2)
	entry(wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 2, Count: 2, Feeds: 2})
	second := Resolve(first, b)
	for _, c := range []struct {
		s    *Snapshot
		want []string
	}{{first, []string{"mag-2", "north/*"}}, {second, []string{"mag-1", "mag-2", "north/*"}}, {first, []string{"mag-2", "north/*"}}} {
		if got := c.s.Feeds["all"].Instruments; !slices.Equal(got, c.want) {
			t.Errorf("revision %d: the Feed of all has %v, not %v", c.s.Revision, got, c.want)
		}
		if got := c.s.Feeds["one"].Instruments; !slices.Equal(got, []string{"mag-2"}) {
			t.Errorf("revision %d: the Feed of one has %v", c.s.Revision, got)
		}
	}
}

// Entries of mirror runs about instruments of other Sites stand beside the Site's own instruments, and take part in nothing
// that is the Site's: Feeds and partners that are given all are not given it, and no marker counts it. A run is known while
// its entry is there.
func TestGuestsAndMovers(t *testing.T) {
	b := NewBucket(time.Time{})
	entry := func(key string, record any) {
		t.Helper()
		raw, err := wire.Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		b.Take(key, raw, true)
	}
	guest := wire.GuestEntry{Origin: "arctic", Instrument: "mag-1", Partner: "arctic", SaidAt: time.Unix(1, 0).UTC(), MediaType: "text/plain"}
	entry(wire.RegistryFeedKey("all"), feed("all", 1, wire.AllInstruments))
	push := wire.MirrorEntry{Partner: "uni", Direction: wire.MirrorPush, Revision: 1, S3: &wire.MirrorS3{}, Continuous: &wire.MirrorContinuous{},
		Selection: wire.MirrorSelection{Instruments: []string{wire.AllInstruments}}}
	entry(wire.RegistryMirrorKey("uni"), push)
	entry(wire.RegistryInstrumentKey("mag-1"), wire.InstrumentEntry{Instrument: "mag-1", Revision: 1})
	entry(wire.RegistryGuestKey("arctic", "mag-1"), guest)
	entry(wire.RegistryMoverKey("arctic", wire.MirrorScheduled), wire.MoverEntry{Partner: "arctic", Kind: wire.MirrorScheduled, Certificate: wire.Digest{1}})
	entry(wire.RegistryMoverKey("arctic", wire.MirrorManual), wire.MoverEntry{Partner: "arctic", Kind: wire.MirrorManual, Certificate: wire.Digest{2}})
	entry(wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 1, Count: 1, Feeds: 1, Mirrors: 1})
	s := Resolve(newSnapshot(), b)
	if in := s.Instruments["arctic_mag-1"]; !s.Complete || in.Origin != "arctic" || in.MediaType != "text/plain" || len(s.Instruments) != 2 {
		t.Errorf("complete %t, instruments %+v", s.Complete, s.Instruments)
	}
	for what, got := range map[string][]string{"the Feed": s.Feeds["all"].Instruments, "the partner": s.Mirrors["uni"].Selection.Instruments} {
		if !slices.Equal(got, []string{"mag-1"}) {
			t.Errorf("%s of all has %v", what, got)
		}
	}
	if got := s.Movers["arctic"]; len(got) != 2 || !slices.Contains(got, wire.Digest{1}) || !slices.Contains(got, wire.Digest{2}) {
		t.Errorf("movers %v", s.Movers)
	}

	// An entry that cannot be read is reported, and what was known of a guest stays; what was known of a run does not.
	b.Take(wire.RegistryGuestKey("arctic", "mag-1"), []byte("{"), true)
	entry(wire.RegistryGuestKey("arctic", "mag-2"), guest) // it names another
	b.Take(wire.RegistryMoverKey("arctic", wire.MirrorManual), nil, false)
	b.Take(wire.RegistryMoverKey("arctic", wire.MirrorScheduled), []byte(`{"format":1,"partner":"arctic","kind":"scheduled"}`), true)
	s = Resolve(s, b)
	for _, key := range []string{wire.RegistryGuestKey("arctic", "mag-1"), wire.RegistryGuestKey("arctic", "mag-2"), wire.RegistryMoverKey("arctic", wire.MirrorScheduled)} {
		if s.Problems[key] == "" {
			t.Errorf("%s is no problem: %v", key, s.Problems)
		}
	}
	if _, stays := s.Instruments["arctic_mag-1"]; !stays || len(s.Instruments) != 2 || len(s.Movers["arctic"]) != 0 {
		t.Errorf("instruments %v, movers %v", s.Instruments, s.Movers)
	}
	b.Take(wire.RegistryGuestKey("arctic", "mag-1"), nil, false)
	if s = Resolve(s, b); len(s.Instruments) != 1 {
		t.Errorf("a guest whose entry is gone stays: %v", s.Instruments)
	}
}

// A guest is under legal hold where the Site is, also once the MirrorPartner that brought it in is deleted, and while the registry is
// not complete.
func TestGuestsUnderHold(t *testing.T) {
	b := NewBucket(time.Time{})
	s := newSnapshot()
	take := func(key string, record any) {
		t.Helper()
		var raw []byte
		if record != nil {
			var err error
			if raw, err = wire.Encode(record); err != nil {
				t.Fatal(err)
			}
		}
		b.Take(key, raw, record != nil)
		s = Resolve(s, b)
	}
	want := func(when string, held bool) {
		t.Helper()
		if in, known := s.Instruments["arctic_mag-1"]; !known || in.LegalHold != held {
			t.Errorf("%s: known %t, under hold %t; want %t", when, known, in.LegalHold, held)
		}
	}
	mirror := wire.RegistryMirrorKey("from-arctic")
	take(wire.RegistryGuestKey("arctic", "mag-1"), wire.GuestEntry{Origin: "arctic", Instrument: "mag-1", Partner: "arctic", SaidAt: time.Unix(1, 0).UTC()})
	take(mirror, wire.MirrorEntry{Partner: "from-arctic", Direction: wire.MirrorPull, Revision: 1,
		HTTPS: &wire.MirrorHTTPS{URL: "https://arctic.example", Source: wire.MirrorSourceSubstorm, Origin: "arctic"}, Continuous: &wire.MirrorContinuous{}})
	take(wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 1, Mirrors: 1})
	want("without a hold", false)
	take(wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 2, Mirrors: 1, LegalHold: true})
	want("the Site is under hold", true)
	take(mirror, nil)
	want("the partner is on its way out", true)
	take(wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 3, LegalHold: true})
	want("the partner is deleted", true)
	take(wire.RegistryCompleteKey, nil)
	want("the marker is gone", true)
	take(wire.RegistryCompleteKey, wire.RegistryComplete{Revision: 4})
	want("the hold has ended", false)
}
