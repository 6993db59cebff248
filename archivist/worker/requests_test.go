// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// A request waits for an archivist, which decides about each; a request that makes no sense, or
// that claims a decision that the archivist has not made, changes nothing and stops nothing.
func TestRequestsAreDecided(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	n, other := l.send(camera, now, "one"), l.send(camera, now.Add(time.Millisecond), "two")
	imported := l.inPlace("old tree/frame.fits", "three", now.Add(-time.Hour))
	l.announce(imported)
	stop := l.run(l.keeper("a"))
	l.await("all is listed", func() bool { return len(l.listed(camera)) == 3 })
	stop()

	claimed, at := other, now.Add(time.Second)
	claimed.State, claimed.PurgedAt, claimed.Reason = wire.StatePurged, &at, "claimed by a gateway"
	l.announce(claimed)
	for subject, text := range map[string]string{
		wire.RequestSubject(l.site, camera):             `{"format":1}`,
		wire.RequestSubject(l.site, "of-nobody") + ".x": `{"format":99}`,
		wire.RequestSubject(l.site, mag):                `{"format":99,"run":"01k9zqv7r4"}`,
	} {
		if _, err := l.js.Publish(t.Context(), subject, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	l.source("north", wire.RequestSubject(l.site, camera), wire.ArchiveRequest{Site: l.site, Instrument: camera, Run: "01k9zqv7r4",
		Action: wire.ActionPurge, ID: other.ID, ReceivedAt: other.ReceivedAt})
	l.answered(camera, wire.ArchiveRequest{Site: l.site, Instrument: camera, Run: "01k9zqv7r5", Action: wire.ActionPurge, ID: other.ID, ReceivedAt: other.ReceivedAt})
	purged, foreign, restored := l.ask(n, wire.StatePurged, "private"), l.ask(imported, wire.StatePurged, "private"), l.ask(other, wire.StateCurrent, "it is not hidden")
	if _, ok := l.decision(purged); ok {
		t.Fatal("somebody decides while there is no archivist")
	}

	l.run(l.keeper("b"))
	for run, want := range map[string]struct {
		result  wire.DecisionResult
		reason  string
		message string
		state   wire.State
	}{
		purged:   {wire.DecisionDone, "", "", wire.StatePurged},
		foreign:  {wire.DecisionRefused, "Foreign", "old tree/frame.fits", wire.StateCurrent},
		restored: {wire.DecisionDone, "", "", wire.StateCurrent},
	} {
		l.await("it is decided", func() bool { _, ok := l.decision(run); return ok })
		d, _ := l.decision(run)
		if d.Result != want.result || d.Reason != want.reason || !strings.Contains(d.Message, want.message) || d.State != want.state {
			t.Errorf("%+v, want %+v", d, want)
		}
	}
	for id, state := range map[string]wire.State{n.ID: wire.StatePurged, other.ID: wire.StateCurrent, imported.ID: wire.StateCurrent} {
		if is := l.record(id).State; is != state {
			t.Errorf("%s is %s, want %s", id, is, state)
		}
	}
	var told []string
	for _, m := range l.noticeStream(wire.NoticeSubjects(l.site)) {
		if notice, err := wire.Decode[wire.Notice](m.Data); err == nil && notice.IsChange() && wire.IsDecided(notice, m.Header.Get(wire.HeaderSource)) {
			told = append(told, string(notice.State)+" "+notice.ID)
		}
	}
	want(t, "what subscribers are told", []string{"Purged " + n.ID}, told)
}

// source has the stream of notices take a request out of another stream, as from a leaf.
func (l *lab) source(from, subject string, q wire.ArchiveRequest) {
	l.t.Helper()
	name := wire.NoticeStream(from)
	_, err := l.js.CreateStream(l.t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{from}})
	if err != nil {
		l.t.Fatal(err)
	}
	s, err := l.js.Stream(l.t.Context(), wire.NoticeStream(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	before, cfg := s.CachedInfo().State.LastSeq, s.CachedInfo().Config
	cfg.Sources = append(cfg.Sources, &jetstream.StreamSource{Name: name, SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: from, Destination: subject}}})
	if _, err := l.js.UpdateStream(l.t.Context(), cfg); err != nil {
		l.t.Fatal(err)
	}
	data, err := wire.Encode(q)
	if err == nil {
		_, err = l.js.Publish(l.t.Context(), from, data)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.await("it is sourced", func() bool {
		m, err := s.GetMsg(l.t.Context(), before+1, jetstream.WithGetMsgSubject(subject))
		return err == nil && m.Header.Get(wire.HeaderStreamSource) != ""
	})
}

// A notice of one instrument names objects of that instrument: what it may not name is
// not listed, and so not given out under the access of another instrument.
func TestNoticeOfAnothersObject(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	secret := l.send(mag, now, "restricted")
	for i, forged := range []wire.Notice{
		{Site: l.site, Instrument: camera, Record: secret.Record},
		{Site: l.site, Instrument: camera, Record: secret.Record},
		{Site: l.site, Instrument: camera, Record: secret.Record},
	} {
		forged.ID = []string{secret.ID, wire.InstrumentPrefix(l.site, camera) + "r/x", secret.ID}[i]
		if i == 2 {
			forged.Key = wire.SiteMarkerKey(l.site)
		}
		m, err := stream.NoticeMessage(forged, "gateway-0")
		if err != nil {
			t.Fatal(err)
		}
		m.Header.Del(wire.HeaderMessageID)
		if _, err := l.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	packed := l.putPack(1, sent{mag, object{now, "restricted too"}})[0]
	l.announce(packed)
	elsewhere := wire.Notice{Site: l.site, Instrument: camera, Record: packed.Record}
	elsewhere.ID = wire.MemberID(packed.Key, packed.Offset+512) // an ID that does not match the place
	l.announce(elsewhere)
	own := l.send(camera, now.Add(time.Millisecond), "own")
	l.run(l.keeper("a"))
	l.await("what came last is listed", func() bool { return l.is(own.ID, wire.StateCurrent) && len(l.listed(mag)) == 2 })
	for _, r := range l.listed(camera) {
		if r.ID != own.ID {
			t.Errorf("of %s is listed %s at %s", camera, r.ID, r.Key)
		}
	}
	want(t, "of the other", 2, len(l.listed(mag)))
}

// answered has a request that is in another stream, as the payload of a datagram may be, sent by JetStream to the
// subject of requests: as its answer to a client that may only read.
func (l *lab) answered(instrument string, q wire.ArchiveRequest) {
	l.t.Helper()
	data, err := wire.Encode(q)
	if err != nil {
		l.t.Fatal(err)
	}
	subject := wire.ObservationSubject(l.site, mag, "raw")
	if _, err := l.js.Publish(l.t.Context(), subject, data); err != nil {
		l.t.Fatal(err)
	}
	last := func() uint64 {
		s, err := l.js.Stream(l.t.Context(), wire.NoticeStream(l.site))
		if err != nil {
			l.t.Fatal(err)
		}
		return s.CachedInfo().State.LastSeq
	}
	before := last()
	get := "$JS.API.DIRECT.GET." + wire.ObservationStream(l.site) + "." + subject
	if err := l.js.Conn().PublishRequest(get, wire.RequestSubject(l.site, instrument), nil); err != nil {
		l.t.Fatal(err)
	}
	l.await("the answer is in the stream of notices", func() bool { return last() > before })
}

// A decision that the stream refuses, as it is full, is not lost with the archivist: the next
// one finds the request, which nothing trims before, and publishes what was decided about it.
func TestDecisionOutlivesTheArchivist(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	n, other := l.send(camera, now, "one"), l.send(camera, now.Add(time.Millisecond), "two")
	cfg := l.keeper("a")
	cfg.TrimInterval = time.Hour
	stop := l.run(cfg)
	l.await("both are listed", func() bool { return len(l.listed(camera)) == 2 })
	limit := func(messages int64) {
		t.Helper()
		s, err := l.js.Stream(t.Context(), wire.NoticeStream(l.site))
		if err != nil {
			t.Fatal(err)
		}
		c := s.CachedInfo().Config
		if messages > 0 {
			messages += int64(s.CachedInfo().State.Msgs)
		}
		c.MaxMsgs = messages
		if _, err := l.js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	limit(2) // as full as it may be with the two requests
	runs := []string{l.ask(n, wire.StatePurged, "private"), l.ask(other, wire.StateRetracted, "a lamp")}
	last := l.state(wire.NoticeStream(l.site)).LastSeq
	l.await("the requests are decided", func() bool { return l.cursor(wire.NoticeCursorKey).Next > last })
	stop()
	for _, run := range runs {
		if _, ok := l.decision(run); ok {
			t.Fatal("a full stream took a decision: the test shows nothing")
		}
	}
	first := l.cursor(wire.NoticeCursorKey).Undecided
	s, err := l.js.Stream(t.Context(), wire.NoticeStream(l.site))
	if err != nil {
		t.Fatal(err)
	}
	trim := &trimmer{js: l.js, stream: wire.NoticeStream(l.site), subjects: wire.NoticeStreamSubjects(l.site),
		from: map[string]func() uint64{wire.RequestSubjects(l.site): func() uint64 { return first }}}
	cuts, err := trim.cuts(t.Context(), s.CachedInfo(), last+1, last+1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cuts {
		if (c.subjects == "" || c.subjects == wire.RequestSubjects(l.site)) && c.limit > last-1 {
			t.Errorf("requests that wait are trimmed: %+v", c)
		}
	}
	want(t, "what may be trimmed", true, slices.ContainsFunc(cuts, func(c cut) bool { return c.limit == last+1 }))

	limit(-1)
	l.run(l.keeper("b"))
	for i, run := range runs {
		l.await("the decision is published", func() bool { _, ok := l.decision(run); return ok })
		if d, _ := l.decision(run); d.Result != wire.DecisionDone || d.ID != []string{n.ID, other.ID}[i] {
			t.Errorf("%+v", d)
		}
	}
	told := map[string]wire.State{}
	for _, m := range l.noticeStream(wire.NoticeSubjects(l.site)) {
		if n, err := wire.Decode[wire.Notice](m.Data); err == nil && n.IsChange() {
			told[n.ID] = n.State
		}
	}
	want(t, "what subscribers are told", map[string]wire.State{n.ID: wire.StatePurged, other.ID: wire.StateRetracted}, told)
	l.await("nothing waits", func() bool { return l.cursor(wire.NoticeCursorKey).Undecided == 0 })
}

// A subscriber that is notified that an older version of a name was retracted is also notified that it was not the
// current one, even if the newer version came after it was retracted.
func TestOlderVersionsRetracted(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	first := l.named(camera, now, "a", "one")
	hidden := l.named(camera, now.Add(time.Millisecond), "b", "one of b")
	stop := l.run(l.keeper("a"))
	l.await("both are listed", func() bool { return len(l.listed(camera)) == 2 })
	retracted := l.ask(hidden, wire.StateRetracted, "a lamp")
	l.await("one is hidden", func() bool { _, ok := l.decision(retracted); return ok })
	second := func(of wire.Notice, at time.Time, body string) wire.Notice {
		n := l.notice(camera, object{at, body})
		n.Name, n.Version, n.Supersedes, n.Key = of.Name, 2, of.ID, wire.NamedKey(l.site, camera, of.Name, 2)
		n.ID = n.Key
		l.putNamed(n, body)
		l.claims2(of, n)
		l.announce(n)
		return n
	}
	newer := second(first, now.Add(time.Second), "two")
	second(hidden, now.Add(2*time.Second), "two of b")
	l.await("the newer ones are listed", func() bool { return len(l.listed(camera)) == 4 && l.is(first.ID, wire.StateSuperseded) })
	for _, n := range []wire.Notice{first, hidden, newer} {
		run := l.ask(n, wire.StatePurged, "private")
		l.await("it is decided", func() bool { _, ok := l.decision(run); return ok })
	}
	stop()
	told := map[string]bool{}
	for _, m := range l.noticeStream(wire.NoticeSubjects(l.site)) {
		if n, err := wire.Decode[wire.Notice](m.Data); err == nil && n.State == wire.StatePurged {
			told[n.ID] = n.Outdated
		}
	}
	want(t, "told with outdated", map[string]bool{first.ID: true, hidden.ID: true, newer.ID: false}, told)
}

// claims2 says in the bucket of names that a name has two versions.
func (l *lab) claims2(first, second wire.Notice) {
	l.t.Helper()
	claim := wire.NameClaim{Name: first.Name}
	for i, n := range []wire.Notice{first, second} {
		claim.Versions = append(claim.Versions, wire.NameVersion{Version: i + 1, Digest: n.Digest, Size: n.Size, Key: n.ID, ReceivedAt: n.ReceivedAt,
			Gateway: n.Gateway, Incarnation: n.Incarnation, Announced: true})
	}
	value, err := wire.Encode(claim)
	if err == nil {
		_, err = l.kv(wire.NamesBucket(l.site)).Put(l.t.Context(), wire.NameKey(first.Instrument, first.Name), value)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}
