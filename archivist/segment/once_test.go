// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// lab is a Site of one channel.
type lab struct {
	t     *testing.T
	js    jetstream.JetStream
	store objectstore.Store
	epoch string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, js: testenv.NATS(t, testenv.NATSOptions{}).JetStream(t), store: testenv.SharedBucket(t)}
	testenv.CreateSite(t, l.js, site)
	var err error
	if l.epoch, _, err = stream.Epoch(t.Context(), l.js, wire.ObservationStream(site)); err != nil {
		t.Fatal(err)
	}
	return l
}

// cutUntil runs a new cutter until what it has archived holds.
func (l *lab) cutUntil(what string, holds func(stream.Position) bool) *Cutter {
	l.t.Helper()
	c := newCutter(l.t, l.js, l.store)
	c.cfg.Limits = func(string) (time.Duration, int64) { return 50 * time.Millisecond, 64 << 20 }
	ctx, cancel := context.WithCancel(l.t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	await(l.t, what, done, func() bool { return holds(c.Archived()) })
	cancel()
	<-done
	return c
}

// archived runs a new cutter until all before a sequence is archived.
func (l *lab) archived(next uint64) *Cutter {
	l.t.Helper()
	return l.cutUntil(fmt.Sprintf("archived to %d", next), func(p stream.Position) bool { return p.Next >= next })
}

// segments returns what the segments in the store hold.
func (l *lab) segments() []wire.SegmentRange {
	l.t.Helper()
	var all []wire.SegmentRange
	for info, err := range l.store.List(l.t.Context(), wire.InstrumentPrefix(site, instrument), "") {
		if err != nil {
			l.t.Fatal(err)
		}
		head, err := l.store.Head(l.t.Context(), info.Key)
		if err != nil {
			l.t.Fatal(err)
		}
		n, err := wire.NoticeFromMetadata(info.Key, head.Metadata)
		if err != nil {
			l.t.Fatal(err)
		}
		all = append(all, *n.Segment)
	}
	return all
}

func (l *lab) publish(incarnation string, number uint64) {
	l.t.Helper()
	publish(l.t, l.js, wire.PublicationID("pool-0", incarnation, number), samples()[0])
}

// A message that was deleted from the middle of a planned range is counted as lost, and the cut
// continues.
func TestDeletedFromTheMiddle(t *testing.T) {
	l := newLab(t)
	for i := range uint64(10) {
		l.publish("one", i+1)
	}
	s, err := l.js.Stream(t.Context(), wire.ObservationStream(site))
	if err != nil {
		t.Fatal(err)
	}
	cursors, err := l.js.KeyValue(t.Context(), wire.CursorBucket(site))
	if err != nil {
		t.Fatal(err)
	}
	day := wire.DayOf(noon)
	planned := wire.SegmentRange{Channel: "raw", Epoch: l.epoch, First: 1, Last: 10, Messages: 10, Datagrams: 10, DatagramBytes: 140}
	value, err := wire.Encode(wire.SegmentCursor{Epoch: l.epoch, Next: 1, Planned: &planned, PlannedDay: day})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cursors.Put(t.Context(), wire.SegmentCursorKey(instrument, "raw"), value); err != nil {
		t.Fatal(err)
	}
	for _, sequence := range []uint64{4, 10} { // in the middle, and at the end
		if err := s.SecureDeleteMsg(t.Context(), sequence); err != nil {
			t.Fatal(err)
		}
	}
	c := l.archived(11)
	want := wire.Totals{Datagrams: 8, DatagramBytes: 8 * 14, Dropped: map[wire.Cause]uint64{wire.CauseMessageDeleted: 2}}
	if diff := cmp.Diff(want, stored(t, l.js, instrument, day)); diff != "" {
		t.Errorf("the ledger (-want +got):\n%s", diff)
	}
	held := wire.SegmentRange{Channel: "raw", Epoch: l.epoch, First: 1, Last: 10, Messages: 8, Datagrams: 8, DatagramBytes: 8 * 14, Deleted: 2}
	if diff := cmp.Diff([]wire.SegmentRange{held}, l.segments()); diff != "" {
		t.Errorf("segments (-want +got):\n%s", diff)
	}
	if n := testutil.ToFloat64(c.cfg.Metrics.dropped.WithLabelValues(string(wire.CauseMessageDeleted))); n != 2 {
		t.Errorf("the metric says %v", n)
	}
}

// A range with fewer messages than the stream's leader has is not settled.
func TestLessThanPlanned(t *testing.T) {
	l := newLab(t)
	for i := range uint64(10) {
		l.publish("one", i+1)
	}
	c := newCutter(t, l.js, l.store)
	ch := newChannel(channelKey{instrument, "raw"}, nil)
	planned := wire.SegmentRange{Channel: "raw", Epoch: l.epoch, First: 1, Last: 10, Messages: 10, Datagrams: 10}
	for read, want := range map[uint64]error{10: nil, 9: errIncomplete, 0: errIncomplete} {
		if err := c.compare(t.Context(), ch, planned, &built{readMessages: read, readDatagrams: read}); !errors.Is(err, want) {
			t.Errorf("%d of 10 messages came: %v", read, err)
		}
	}
}

// A message that the stream holds a second time is in one segment, however late it comes
// and whichever cutter is at work.
func TestDuplicateedAcrossSegments(t *testing.T) {
	l := newLab(t)
	l.publish("one", 1)
	l.publish("one", 3)
	l.archived(3)
	l.publish("one", 1)
	c := l.archived(4)
	if n := testutil.ToFloat64(c.cfg.Metrics.duplicates); n != 1 {
		t.Errorf("%v duplicates", n)
	}
	l.publish("one", 2) // of the group of 1 and 3, and refused for a while
	l.publish("one", 3)
	l.publish("two", 1) // another incarnation restarts its count
	l.archived(7)
	var held uint64
	for _, s := range l.segments() {
		held += s.Datagrams
	}
	if held != 4 || stored(t, l.js, instrument, wire.DayOf(noon)).Datagrams != 4 {
		t.Errorf("%d datagrams in %+v, the ledger has %+v", held, l.segments(), stored(t, l.js, instrument, wire.DayOf(noon)))
	}
}

// If the cursors are lost, nothing is cut twice and nothing is left out; and a message that
// comes a second time afterwards is known.
func TestCursorsLost(t *testing.T) {
	l := newLab(t)
	for i := range uint64(6) {
		l.publish("one", i+1)
		l.archived(i + 2)
	}
	before := l.segments()
	if err := l.js.DeleteKeyValue(t.Context(), wire.CursorBucket(site)); err != nil {
		t.Fatal(err)
	}
	testenv.CreateSite(t, l.js, site)
	l.publish("one", 7)
	l.publish("one", 2)
	l.archived(9)
	after := l.segments()
	if len(before) != 6 || len(after) != 7 {
		t.Fatalf("segments %+v, and then %+v", before, after)
	}
	if got := stored(t, l.js, instrument, wire.DayOf(noon)); got.Datagrams != 7 {
		t.Errorf("the ledger has %+v, 7 datagrams were sent", got)
	}
	// The ledger, too: what is stored is counted from the segments.
	for _, bucket := range []string{wire.CursorBucket(site), wire.LedgerBucket(site)} {
		if err := l.js.DeleteKeyValue(t.Context(), bucket); err != nil {
			t.Fatal(err)
		}
	}
	testenv.CreateSite(t, l.js, site)
	l.publish("one", 8)
	l.archived(10)
	if got := stored(t, l.js, instrument, wire.DayOf(noon)); got.Datagrams != 8 {
		t.Errorf("the ledger has %+v, 8 datagrams were sent", got)
	}
}

// untilStored is a lease that is lost once a segment is in the store.
type untilStored struct{ *lab }

func (u untilStored) Check() error {
	if len(u.segments()) > 0 {
		return stream.ErrLeaseLost
	}
	return nil
}

// A segment that was stored and not announced is announced by the next cutter, also where the cursor that planned it was lost since.
func TestCursorsLostBeforeTheNotice(t *testing.T) {
	l := newLab(t)
	l.publish("one", 1)
	c := newCutter(t, l.js, l.store)
	c.cfg.Lease = untilStored{l}
	c.cfg.Limits = func(string) (time.Duration, int64) { return time.Millisecond, 64 << 20 }
	if err := c.Run(t.Context()); !errors.Is(err, stream.ErrLeaseLost) {
		t.Fatal(err)
	}
	notices := func() uint64 {
		_, state, err := stream.Epoch(t.Context(), l.js, wire.NoticeStream(site))
		if err != nil {
			t.Fatal(err)
		}
		return state.Msgs
	}
	if n := notices(); n != 0 || len(l.segments()) != 1 {
		t.Fatalf("%d notices of %+v", n, l.segments())
	}
	if err := l.js.DeleteKeyValue(t.Context(), wire.CursorBucket(site)); err != nil {
		t.Fatal(err)
	}
	testenv.CreateSite(t, l.js, site)
	l.archived(2)
	if n := notices(); n != 1 || len(l.segments()) != 1 {
		t.Errorf("%d notices of %+v", n, l.segments())
	}
}

// A segment whose metadata is lost, as in a copy without it, keeps no channel from going on behind it.
func TestMetadataLost(t *testing.T) {
	l := newLab(t)
	l.publish("one", 1)
	l.archived(2)
	for info, err := range l.store.List(t.Context(), wire.SegmentsPrefix(site, instrument), "") {
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.store.Delete(t.Context(), info.Key), l.store.Put(t.Context(), info.Key, strings.NewReader("x"), 1, objectstore.PutOptions{})); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.js.DeleteKeyValue(t.Context(), wire.CursorBucket(site)); err != nil {
		t.Fatal(err)
	}
	testenv.CreateSite(t, l.js, site)
	l.publish("one", 2)
	l.publish("two", 3)
	l.archived(4)
}

// A planned segment that lost its metadata is stored once more where the stream gives the same bytes. Else it stays as it is, and nothing of it is
// counted.
func TestPlannedMetadataLost(t *testing.T) {
	for name, other := range map[string]struct{ body, epoch string }{"as it was": {}, "damaged": {body: "x"}, "of a lost stream": {epoch: "before"}} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			for i := range uint64(3) {
				l.publish("one", i+1)
			}
			day := wire.DayOf(noon)
			planned := wire.SegmentRange{Channel: "raw", Epoch: l.epoch, First: 1, Last: 3, Messages: 3, Datagrams: 3, DatagramBytes: 3 * 14}
			c := newCutter(t, l.js, l.store)
			c.epoch = l.epoch
			first, _, err := c.object(t.Context(), newChannel(channelKey{instrument, "raw"}, nil), planned, day)
			if err != nil {
				t.Fatal(err)
			}
			body := string(l.bytes(first.Key))
			if other.body != "" {
				body = other.body
			}
			if other.epoch != "" {
				planned.Epoch = other.epoch
			}
			key := wire.SegmentKey(site, instrument, "raw", day, planned.Epoch, 1, 3)
			if err := errors.Join(l.store.Delete(t.Context(), key), l.store.Put(t.Context(), key, strings.NewReader(body), int64(len(body)), objectstore.PutOptions{})); err != nil {
				t.Fatal(err)
			}
			again, totals, err := c.object(t.Context(), newChannel(channelKey{instrument, "raw"}, nil), planned, day)
			if other.body+other.epoch != "" {
				if again != nil || totals.Datagrams+uint64(len(totals.Dropped)) > 0 || !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), "backup") {
					t.Errorf("%v, %+v, %v", again, totals, err)
				}
				if is := string(l.bytes(key)); is != body {
					t.Errorf("the object has %d bytes by now", len(is))
				}
				return
			}
			if err != nil || totals.Datagrams != 3 {
				t.Fatal(totals, err)
			}
			if diff := cmp.Diff(first, again); diff != "" {
				t.Errorf("the notices differ (-first +again):\n%s", diff)
			}
			if diff := cmp.Diff([]wire.SegmentRange{planned}, l.segments()); diff != "" {
				t.Errorf("segments (-want +got):\n%s", diff)
			}
		})
	}
}

// bytes returns those of an object in the store.
func (l *lab) bytes(key string) []byte {
	l.t.Helper()
	body, _, err := l.store.Get(l.t.Context(), key, objectstore.All)
	if err != nil {
		l.t.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		l.t.Fatal(err)
	}
	return data
}

// If a day's manifest cannot be read, segments are counted without it: those in the bucket, and those that the
// changes list as purged.
func TestUnreadableManifest(t *testing.T) {
	l := newLab(t)
	for i := range uint64(3) {
		l.publish("one", i+1)
		l.archived(i + 2)
	}
	var last wire.Record
	for info, err := range l.store.List(t.Context(), wire.InstrumentPrefix(site, instrument), "") {
		if err != nil {
			t.Fatal(err)
		}
		head, err := l.store.Head(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		n, err := wire.NoticeFromMetadata(info.Key, head.Metadata)
		if err != nil {
			t.Fatal(err)
		}
		if n.Segment.Last == 3 {
			last = n.Record
		}
	}
	last.State = wire.StatePurged
	day := wire.DayOf(noon)
	header := wire.ManifestHeader{Site: site, Instrument: instrument, Day: day, Writer: "a", Incarnation: "1"}
	if err := manifest.PutChanges(t.Context(), l.store, header, 2, []wire.Record{last}); err != nil {
		t.Fatal(err)
	}
	if err := l.store.Delete(t.Context(), last.Key); err != nil {
		t.Fatal(err)
	}
	if err := l.store.Put(t.Context(), wire.ManifestPartKey(site, instrument, day, 2), strings.NewReader("no manifest"), 11, objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	c := newCutter(t, l.js, l.store)
	c.epoch, c.lost, c.since = l.epoch, true, noon
	ch := newChannel(channelKey{instrument, "raw"}, nil)
	sum, err := c.inSegments(t.Context(), ch, day, wire.SegmentRange{})
	if err != nil || sum.Datagrams != 3 {
		t.Errorf("counted: %+v, %v", sum, err)
	}
	if newest, err := c.newestListed(t.Context(), ch); err != nil || newest != 3 {
		t.Errorf("the newest is %d, %v", newest, err)
	}
}

// In whatever order a committer's groups come, and whatever is repeated, each number is new exactly
// once.
func TestPublishedOnce(t *testing.T) {
	const groups, seed = 12, 7
	random := rand.New(rand.NewPCG(seed, seed))
	p := publishedOf(&wire.SegmentCursor{})
	message := func(number uint64) stream.Message { return publication("pool-0", "one", number, noon) }
	var all []uint64
	next := uint64(0) // gateways begin with 1; others may not
	for range groups {
		group := make([]uint64, 1+random.IntN(stream.MaxGroup))
		for i := range group {
			group[i] = next
			next += 1 + random.Uint64N(50) // others are of other channels and streams
		}
		random.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
		for _, number := range group {
			if p.isDuplicate(message(number)) {
				t.Fatalf("%d comes for the first time and is taken for a duplicate", number)
			}
			all = append(all, number)
			if again := all[random.IntN(len(all))]; !p.isDuplicate(message(again)) {
				t.Fatalf("%d comes a second time and is taken for new", again)
			}
		}
		var cursor wire.SegmentCursor
		p.save(&cursor)
		value, err := wire.Encode(cursor)
		if err != nil {
			t.Fatal(err)
		}
		if cursor, err = wire.Decode[wire.SegmentCursor](value); err != nil || len(value) > 8<<10 {
			t.Fatalf("a cursor of %d bytes, %v", len(value), err)
		}
		p = publishedOf(&cursor)
	}
}

// publication is a telemetry message of an incarnation.
func publication(gateway, incarnation string, number uint64, at time.Time) stream.Message {
	m := stream.Message{Header: nats.Header{}, At: at}
	m.Header.Set(wire.HeaderID, wire.PublicationID(gateway, incarnation, number))
	return m
}

// The number of incarnations that are remembered is bounded, and those that were heard last are kept.
func TestPublishedIsBounded(t *testing.T) {
	p := publishedOf(&wire.SegmentCursor{})
	for incarnation := range 3 * keepIncarnations {
		p.isDuplicate(publication("pool-0", fmt.Sprint("incarnation-", incarnation), 1, noon.Add(time.Duration(incarnation)*time.Minute)))
	}
	var cursor wire.SegmentCursor
	p.save(&cursor)
	if _, kept := cursor.Published[fmt.Sprint("pool-0/incarnation-", 3*keepIncarnations-1)]; len(cursor.Published) != keepIncarnations || !kept {
		t.Errorf("%d incarnations are remembered, the last one: %t", len(cursor.Published), kept)
	}
	p.isDuplicate(publication("pool-1", "new", 1, noon.Add(keepIncarnation+24*time.Hour)))
	p.save(&cursor)
	if len(cursor.Published) != 1 {
		t.Errorf("%d incarnations are remembered a month later", len(cursor.Published))
	}
}

// Duplicates are known across segments for each gateway that may be alive, however many share a channel and however
// often others start again; and a cursor that holds as much as it ever does fits into a message of NATS.
func TestPublishedByManyGateways(t *testing.T) {
	const apart = 99_999 // numbers between two of the channel
	p := publishedOf(&wire.SegmentCursor{})
	name := strings.Repeat("p", 60) // a pod's is at most its host's
	live := func(pod int, incarnation string, at time.Time) {
		for i := range uint64(2 * keepNumbers) {
			p.isDuplicate(publication(fmt.Sprint(name, pod), incarnation, 1+i*apart, at))
		}
	}
	for pod := range keepGateways {
		live(pod, "incarnation", noon)
	}
	for incarnation := range 2 * keepIncarnations {
		live(0, fmt.Sprint("incarnation-", incarnation), noon.Add(time.Duration(incarnation+1)*time.Second))
	}
	var cursor wire.SegmentCursor
	p.save(&cursor)
	value, err := wire.Encode(cursor)
	if err != nil || len(value) > 1<<20-1<<10 { // less its headers
		t.Fatalf("a cursor of %d bytes, %v", len(value), err)
	}
	p = publishedOf(&cursor)
	for pod := 1; pod < keepGateways; pod++ {
		if !p.isDuplicate(publication(fmt.Sprint(name, pod), "incarnation", 1+(2*keepNumbers-1)*apart, noon)) {
			t.Fatalf("what gateway %d published a second time is taken for new", pod)
		}
	}
}
