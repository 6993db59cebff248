// SPDX-License-Identifier: Apache-2.0

package natsdelivery

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// filled returns the place that is noted of a consumer.
func (l *lab) filled(consumer string) wire.FeedToken {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.CursorBucket(site))
	if err != nil {
		l.t.Fatal(err)
	}
	e, err := kv.Get(l.t.Context(), wire.FilledCursorKey(wire.DeliveryLease(consumer)))
	if err != nil {
		return wire.FeedToken{}
	}
	c, err := wire.Decode[wire.FilledCursor](e.Value())
	if err != nil {
		l.t.Fatal(err)
	}
	token, err := wire.ParseFeedToken(c.Places[consumer].Token)
	if err != nil {
		l.t.Fatal(err)
	}
	return token
}

// Nothing comes for a consumer of mode Latest, while messages for others leave the stream. A feed
// server that takes over resumes where the first one was: nothing was missed.
func TestQuiet(t *testing.T) {
	l, _ := oneServer(t)
	l.announce(camera, 1)
	l.declare(wire.ConsumerEntry{Consumer: "quiet", NoTelemetry: true, Instruments: []string{camera}, Flow: wire.FlowEntry{Mode: wire.FlowLatest}})
	first := l.serve("pod-0")
	k := newTaken()
	consume(t, l.connect("quiet"), wire.ConsumerStream(site, "quiet"), "quiet", k, 0, nil)
	testenv.Await(t, "the newest of before is given", func() bool { return slices.Contains(k.distinct("notice"), 1) })
	for i := range 100 {
		l.announce("camera-2", 100+i)
	}
	const last = 101
	testenv.Await(t, "the place is noted", func() bool { return l.filled("quiet").Notices.Sequence >= last })
	first.kill()
	s, err := l.js.Stream(t.Context(), wire.NoticeStream(site))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(last+1)); err != nil {
		t.Fatal(err)
	}
	l.serve("pod-1")
	l.announce(camera, 2)
	testenv.Await(t, "what comes then is given", func() bool { return slices.Contains(k.distinct("notice"), 2) })
	same(t, "gaps", nil, k.allGaps())
	same(t, "notices", []int{1, 2}, k.distinct("notice"))
}

func TestFurther(t *testing.T) {
	at := func(epoch string, sequence uint64, index uint32) wire.ResumeToken {
		return wire.ResumeToken{Epoch: epoch, Sequence: sequence, Index: index}
	}
	for name, c := range map[string]struct{ a, b, want wire.ResumeToken }{
		"further":        {at("a", 5, 3), at("a", 9, 0), at("a", 9, 0)},
		"behind":         {at("a", 9, 0), at("a", 5, 3), at("a", 9, 0)},
		"in one message": {at("a", 5, 3), at("a", 5, 4), at("a", 5, 4)},
		"another stream": {at("a", 5, 3), at("b", 9, 0), at("a", 5, 3)},
		"unknown":        {at("", 0, 0), at("b", 9, 0), at("b", 9, 0)},
		"not noted":      {at("a", 5, 3), at("", 0, 0), at("a", 5, 3)},
	} {
		got := further(wire.FeedToken{Notices: c.a, Telemetry: c.a}, wire.FeedToken{Notices: c.b, Telemetry: c.b})
		if diff := cmp.Diff(wire.FeedToken{Notices: c.want, Telemetry: c.want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A hub's consumer begins with the newest of each leaf's instruments, too.
func TestNewestOfLeaf(t *testing.T) {
	l, _ := oneServer(t)
	for name, subjects := range map[string]string{wire.NoticeStream(site): wire.NoticeSubjects("north"), wire.ObservationStream(site): wire.ObservationSubjects("north")} {
		s, err := l.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		cfg.Subjects = append(cfg.Subjects, subjects) // as if it sourced them
		if _, err := l.js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	f, err := wire.Encode(wire.FeedEntry{UID: "feed-uid", Revision: 1, Feed: feed, Notices: wire.NoticeStream(site), Telemetry: wire.ObservationStream(site),
		Instruments: append(slices.Clone(instruments), wire.LeafInstruments("north"))})
	l.put(wire.RegistryFeedKey(feed), f, err)
	n := l.notice(camera, 7)
	n.Site = "north"
	l.publishNotice(n)
	m := nats.NewMsg(wire.ObservationSubject("north", mag, channel))
	m.Data = wire.AppendDatagram(wire.AppendTelemetryHeader(nil, mag, channel), wire.Datagram{ReceivedAt: n.Record.ReceivedAt, Payload: []byte("8")})
	m.Header.Set(wire.HeaderID, "gateway-0/incarnation-1/8")
	m.Header.Set(wire.HeaderType, wire.TypeTelemetry)
	l.publish(m)
	l.declare(wire.ConsumerEntry{Consumer: "display", Flow: wire.FlowEntry{Mode: wire.FlowLatest}})
	l.serve("pod-0")
	testenv.Await(t, "the newest of the leaf is there", func() bool {
		_, _, notice := l.last("display", wire.NoticeSubject("north", camera))
		_, _, telemetry := l.last("display", wire.ObservationSubject("north", mag, channel))
		return notice == nil && telemetry == nil
	})
}

// lease returns one that lasts as long as a test may take.
func (l *lab) lease() *stream.Lease {
	l.t.Helper()
	leases, err := l.js.CreateKeyValue(l.t.Context(), jetstream.KeyValueConfig{Bucket: "LONG", TTL: time.Hour})
	if err != nil {
		l.t.Fatal(err)
	}
	lease, err := stream.AcquireLease(l.t.Context(), leases, "delivery.0", wire.Lease{Holder: "pod-0", Incarnation: "incarnation"}, slog.New(slog.NewTextHandler(testWriter{l.t}, nil)))
	if err != nil {
		l.t.Fatal(err)
	}
	return lease
}

// filler fills a stream that answers, or does not.
func (l *lab) filler(name string, lease *stream.Lease, answers bool) *filler {
	l.t.Helper()
	_, err := l.js.CreateStream(l.t.Context(), jetstream.StreamConfig{Name: wire.ConsumerStream(site, name), Subjects: []string{wire.LiveSubjects(site, name)},
		Storage: jetstream.MemoryStorage, MaxMsgsPerSubject: 1, NoAck: !answers})
	if err != nil {
		l.t.Fatal(err)
	}
	js, err := newPublisher(l.js.Conn())
	if err != nil {
		l.t.Fatal(err)
	}
	return &filler{consumer: name, stream: wire.ConsumerStream(site, name), lease: lease, publisher: js}
}

// A feed server that no longer has the lease puts nothing into a stream: another one fills it.
func TestNothingWithoutTheLease(t *testing.T) {
	l, _ := oneServer(t)
	lease := l.lease()
	f := l.filler("display", lease, true)
	put := func() error {
		return f.put(t.Context(), []*nats.Msg{nats.NewMsg(wire.LiveSubject(site, f.consumer, wire.NoticeSubject(site, camera)))})
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := put(); !errors.Is(err, stream.ErrLeaseLost) {
		t.Errorf("without the lease: %v", err)
	}
	s, err := l.js.Stream(t.Context(), f.stream)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.LastSeq; n != 1 {
		t.Errorf("%d messages were put", n)
	}
}

// A stream that takes messages and never answers costs its own consumer only, and
// what it does not answer is forgotten.
func TestNoAnswer(t *testing.T) {
	l, _ := oneServer(t)
	lease := l.lease()
	filling := func(name string, answers bool) *filler { return l.filler(name, lease, answers) }
	fill := func(f *filler) error {
		var messages []*nats.Msg
		for range 512 {
			messages = append(messages, nats.NewMsg(wire.LiveSubject(site, f.consumer, wire.NoticeSubject(site, camera))))
		}
		return f.put(t.Context(), messages)
	}
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} // more together than one publisher lets wait
	failed := make(chan error, len(names))
	silent := make([]*filler, len(names))
	for i, name := range names {
		silent[i] = filling(name, false)
		go func() { failed <- fill(silent[i]) }()
	}
	testenv.Await(t, "all wait for answers", func() bool {
		return !slices.ContainsFunc(silent, func(f *filler) bool { return f.publisher.PublishAsyncPending() < 512 })
	})
	if err := fill(filling("answers", true)); err != nil {
		t.Errorf("a stream that answers: %v", err)
	}
	for range names {
		if err := <-failed; err == nil {
			t.Error("what was never answered is taken for put")
		}
	}
	testenv.Await(t, "nothing waits any more", func() bool {
		return !slices.ContainsFunc(silent, func(f *filler) bool { return f.publisher.PublishAsyncPending() > 0 })
	})
}

// All servers restart: a consumer's stream in memory is empty then, and its creation time is the
// same as before. The newest messages are there again, also of instruments that are quiet.
func TestLatestAllServersRestart(t *testing.T) {
	t.Parallel()
	cluster := testenv.NATSCluster(t, testenv.NATSOptions{Operator: true})
	l := newLab(t, cluster, 3)
	l.declare(wire.ConsumerEntry{Consumer: "display", Flow: wire.FlowEntry{Mode: wire.FlowLatest}})
	l.serve("pod-0")
	l.announce(camera, 1)
	l.telemetry(mag, 1, 1)
	there := func() bool {
		_, _, err := l.last("display", wire.NoticeSubject(site, camera))
		if err == nil {
			_, _, err = l.last("display", wire.ObservationSubject(site, mag, "raw"))
		}
		return err == nil
	}
	testenv.Await(t, "the newest are there", there)
	testenv.Await(t, "its place is noted", func() bool {
		noted := l.filled("display")
		return noted.Notices.Sequence > 0 && noted.Telemetry.Sequence > 0
	})
	for _, n := range cluster.Nodes {
		n.Kill()
	}
	var starting sync.WaitGroup
	for _, n := range cluster.Nodes { // none answers before most of them run
		starting.Go(n.Start)
	}
	starting.Wait()
	testenv.Await(t, "the newest are there again", there)
}
