// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// keeper is the configuration of an archivist that removes at once.
func (l *lab) keeper(gateway string) Config {
	cfg := l.config(gateway)
	cfg.RemoveInterval, cfg.RemoveGrace = 50*time.Millisecond, time.Millisecond
	return cfg
}

// ask requests that an object get into another state, and returns the run of that.
func (l *lab) ask(n wire.Notice, state wire.State, reason string) string {
	l.t.Helper()
	action := map[wire.State]wire.Action{wire.StateRetracted: wire.ActionRetract, wire.StatePurged: wire.ActionPurge, wire.StateCurrent: wire.ActionRestore,
		wire.StateSuperseded: wire.ActionSupersede}[state]
	q := wire.ArchiveRequest{Site: n.Site, Instrument: n.Instrument, Run: nuid.Next(), Action: action, ID: n.ID, ReceivedAt: n.ReceivedAt,
		Reason: reason, By: "anna"}
	return l.request(q)
}

// request asks the archivist, and returns the run.
func (l *lab) request(q wire.ArchiveRequest) string {
	l.t.Helper()
	data, err := wire.Encode(q)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.js.Publish(l.t.Context(), wire.RequestSubject(q.Site, q.Instrument), data); err != nil {
		l.t.Fatal(err)
	}
	return q.Run
}

func (l *lab) record(id string) wire.Record {
	l.t.Helper()
	for _, instrument := range []string{camera, mag, guest} {
		for _, r := range l.listed(instrument) {
			if r.ID == id {
				return r
			}
		}
	}
	return wire.Record{}
}

func (l *lab) is(id string, state wire.State) bool { return l.record(id).State == state }

func (l *lab) there(key string) bool {
	l.t.Helper()
	_, err := l.store.Head(l.t.Context(), key)
	if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
		l.t.Fatal(err)
	}
	return err == nil
}

// removals are the keys of what is still to be removed.
func (l *lab) removals() []string {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.CursorBucket(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	list, err := kv.ListKeysFiltered(l.t.Context(), wire.RemovalKeys)
	if err != nil {
		l.t.Fatal(err)
	}
	var keys []string
	for key := range list.Keys() {
		keys = append(keys, key)
	}
	return keys
}

func (l *lab) hold(instrument string, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.settings[instrument]
	e.LegalHold = on
	l.settings[instrument] = e
}

func counted(t *testing.T, g prometheus.Gatherer, name, label string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return -1 // it may come yet
}

// Objects are hidden, shown again, and removed for good, wherever they are stored; objects in the
// same pack stay.
func TestRetract(t *testing.T) {
	l := start(t).site(t, "hub")
	cfg := l.keeper("a")
	metrics := prometheus.NewRegistry()
	cfg.Metrics = metrics
	stop := l.run(cfg)
	now := time.Now().UTC()
	at := func(i int) time.Time { return now.Add(time.Duration(i) * time.Millisecond) }
	raw, stays := l.send(camera, at(0), "one"), l.send(camera, at(1), "two")
	members := l.putPack(1, sent{camera, object{at(2), "three"}}, sent{mag, object{at(3), "four"}}, sent{camera, object{at(4), "five"}})
	for _, n := range members {
		l.announce(n)
	}
	duplicate := l.putPack(2, sent{camera, object{at(5), "two"}}, sent{camera, object{at(6), "six"}})
	for _, n := range duplicate {
		l.announce(n)
	}
	l.await("all is listed", func() bool { return len(l.listed(camera)) == 6 && len(l.listed(mag)) == 1 })
	want(t, "the duplicate's state", wire.StateDuplicate, l.record(duplicate[0].ID).State)

	l.ask(raw, wire.StateRetracted, "dark")
	l.ask(members[0], wire.StateRetracted, "dark too")
	l.await("they are retracted", func() bool { return l.is(raw.ID, wire.StateRetracted) && l.is(members[0].ID, wire.StateRetracted) })
	l.ask(raw, wire.StateCurrent, "it was the night")
	l.ask(stays, wire.StateCurrent, "it is not hidden")
	l.await("it is restored", func() bool { return l.is(raw.ID, wire.StateCurrent) })
	r := l.record(raw.ID)
	if r.Reason != "it was the night" || r.ChangedBy != "anna" || r.RestoredAt == nil || r.RetractedAt == nil || !l.there(raw.Key) {
		t.Errorf("restored: %+v", r)
	}
	l.ask(raw, wire.StateRetracted, "dark all the same") // within what JetStream takes for a duplicate
	l.await("it is retracted again", func() bool { return l.is(raw.ID, wire.StateRetracted) })

	unlisted := stays
	unlisted.ID += "x"
	l.ask(unlisted, wire.StatePurged, "of nothing")
	for _, n := range []wire.Notice{raw, members[0], duplicate[0]} {
		l.ask(n, wire.StatePurged, "a person is in the picture")
	}
	l.await("they are purged", func() bool { return l.is(raw.ID, wire.StatePurged) && l.is(members[0].ID, wire.StatePurged) })
	l.await("their bytes are gone", func() bool { return !l.there(raw.Key) && !l.there(members[0].Key) && !l.there(duplicate[0].Key) })
	l.await("nothing is left to do", func() bool { return len(l.removals()) == 0 })
	l.ask(raw, wire.StateCurrent, "too late")
	l.await("that is refused", func() bool { return counted(t, metrics, "substorm_archive_changes_refused_total", "State") == 1 })
	// The sweep may find one as it goes.
	l.await("three are counted as removed", func() bool { return counted(t, metrics, "substorm_archive_removed_objects_total", "Purge") >= 3 })
	want(t, "refused as unlisted", 1, counted(t, metrics, "substorm_archive_changes_refused_total", "Unlisted"))
	l.intact(members[1].ID, members[2].ID, stays.ID, duplicate[1].ID)
	if r := l.record(raw.ID); r.State != wire.StatePurged || r.Reason != "a person is in the picture" || r.PurgedAt == nil || r.Size != raw.Size {
		t.Errorf("tombstone: %+v", r)
	}

	// Purged objects that come out of a spool once more are removed again; an object that is sent again is new.
	l.putObject(camera, object{at(0), "one"})
	l.putPackOf(3, func(wire.Notice) string { return members[0].ID }, sent{camera, object{at(2), "three"}})
	anew := l.send(camera, at(7), "one")
	l.await("they are gone again", func() bool {
		return !l.there(raw.Key) && !l.there(wire.PackKey(l.site, at(2), "gateway-0", "incarnation1", 3)) && len(l.removals()) == 0
	})
	l.await("the new one is listed", func() bool { return l.is(anew.ID, wire.StateCurrent) })
	l.intact(anew.ID, members[1].ID, members[2].ID, stays.ID)

	// The changes are beside the data.
	stop()
	changes, err := manifest.ReadChanges(t.Context(), l.store, l.site, camera, wire.DayOf(now))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "states beside the data", []wire.State{wire.StatePurged, wire.StatePurged, wire.StateDuplicate},
		[]wire.State{changes.Records[raw.ID].State, changes.Records[members[0].ID].State, changes.Records[duplicate[0].ID].State})
}

// intact checks that objects are current, and that their bytes are where their records say.
func (l *lab) intact(ids ...string) {
	l.t.Helper()
	for _, id := range ids {
		r := l.record(id)
		if r.State != wire.StateCurrent {
			l.t.Errorf("%s: %s", id, r.State)
			continue
		}
		body, err := objectpath.Open(l.t.Context(), l.store, r)
		if err != nil {
			l.t.Errorf("%s: %v", id, err)
			continue
		}
		if _, err := io.Copy(io.Discard, body); err != nil { // it compares the digest
			l.t.Errorf("%s: %v", id, err)
		}
		_ = body.Close()
	}
}

// refused is what the archivist reports that it did not retract, by reason.
func (l *lab) refused(instrument string) map[string]wire.RefusedChange {
	l.t.Helper()
	kv, err := l.js.KeyValue(l.t.Context(), wire.StatusBucket(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	e, err := kv.Get(l.t.Context(), wire.RefusalStatusKey(instrument, wire.ArchivistWriter))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	if err != nil {
		l.t.Fatal(err)
	}
	status, err := wire.Decode[wire.RefusalStatus](e.Value())
	if err != nil {
		l.t.Fatal(err)
	}
	return status.Changes
}

// Legal hold stops what was asked for, what was begun, and what is not known to be free.
func TestLegalHold(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	cfg := l.keeper("a")
	cfg.RemoveInterval = time.Hour // it lists, and removes nothing
	metrics := prometheus.NewRegistry()
	cfg.Metrics = metrics
	first, second := l.send(camera, now, "one"), l.send(camera, now.Add(time.Millisecond), "two")
	strange, restored := l.send("foreign", now, "three"), l.send(camera, now.Add(2*time.Millisecond), "four")
	stop := l.run(cfg)
	l.await("all is listed", func() bool { return len(l.listed(camera)) == 3 && len(l.listed("foreign")) == 1 })
	l.ask(restored, wire.StateRetracted, "dark")
	l.await("it is retracted", func() bool { return l.is(restored.ID, wire.StateRetracted) })
	l.ask(restored, wire.StateCurrent, "it was the night")
	l.await("it is restored", func() bool { return l.is(restored.ID, wire.StateCurrent) })
	restored.Record = l.record(restored.ID) // with restoredAt, as readers of the manifest have it
	l.ask(first, wire.StatePurged, "before the hold")
	l.await("it is purged", func() bool { return l.is(first.ID, wire.StatePurged) && len(l.removals()) == 1 })
	l.hold(camera, true)
	l.ask(second, wire.StatePurged, "under hold")
	l.ask(second, wire.StateRetracted, "under hold")
	l.ask(strange, wire.StatePurged, "of an instrument that nobody declares")
	l.ask(restored, wire.StatePurged, "under hold, though it was restored once")
	l.await("four are refused", func() bool { return counted(t, metrics, "substorm_archive_changes_refused_total", "LegalHold") == 4 })
	l.await("three of them are reported for those who declared the camera", func() bool { return l.refused(camera)["LegalHold"].Count == 3 })
	want(t, "the last one's object", restored.ID, l.refused(camera)["LegalHold"].ID)
	l.await("one is for who did not declare", func() bool { return l.refused("foreign")["LegalHold"].Asked == "Purged" })
	stop()

	other := l.keeper("b")
	metrics = prometheus.NewRegistry()
	other.Metrics = metrics
	l.run(other)
	l.await("the removal waits", func() bool { return counted(t, metrics, "substorm_archive_removals_waiting", "LegalHold") == 1 })
	if !l.there(first.Key) || !l.there(strange.Key) {
		t.Error("bytes are gone in spite of legal hold")
	}
	l.intact(second.ID, restored.ID)
	l.hold(camera, false)
	l.await("it goes after the hold", func() bool { return !l.there(first.Key) && len(l.removals()) == 0 })
	l.await("nothing waits any more", func() bool { return counted(t, metrics, "substorm_archive_removals_waiting", "LegalHold") == 0 })
}

// An instrument whose entry cannot be read counts as held, whatever an older one says: what
// cannot be read may say that it is.
func TestUnreadEntryHolds(t *testing.T) {
	t.Parallel()
	unread := false
	a := &archivist{cfg: Config{
		Settings: func(instrument string) (wire.InstrumentEntry, bool) {
			return wire.InstrumentEntry{Instrument: instrument}, true
		},
		Unread: func(string) bool { return unread },
	}}
	if why := a.held(camera); why != "" || !a.known(camera) {
		t.Errorf("where all can be read: %q", why)
	}
	unread = true
	if a.held(camera) == "" || a.known(camera) {
		t.Error("by an entry that may be outdated, what may be under legal hold may be deleted, or marked as a duplicate")
	}
}

// Nothing is retracted by a registry that a gateway has from its disk, and what was
// asked for is not refused for that: it waits for the Site's.
func TestRegistryIsAwaited(t *testing.T) {
	l := start(t).site(t, "hub")
	n := l.send(camera, time.Now().UTC(), "one")
	stop := l.run(l.config("a"))
	l.await("it is listed", func() bool { return len(l.listed(camera)) == 1 })
	stop()
	l.ask(n, wire.StatePurged, "private")

	cfg := l.keeper("b")
	var live atomic.Bool
	cfg.Live = live.Load
	cfg.Declared = func() ([]wire.InstrumentEntry, bool) { return nil, true }
	early, err := newArchivist(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, known := early.declared()(); known || early.held(camera) == "" {
		t.Errorf("declared: %t, held: %q, of a registry from the disk", known, early.held(camera))
	}
	metrics := prometheus.NewRegistry()
	cfg.Metrics = metrics
	time.AfterFunc(time.Second, func() { live.Store(true) })
	l.run(cfg)
	l.await("it is gone", func() bool { return !l.there(n.Key) && len(l.removals()) == 0 })
	want(t, "refused", 0, max(0, counted(t, metrics, "substorm_archive_changes_refused_total", "LegalHold")))
	if _, known := early.declared()(); !known || early.held(camera) != "" {
		t.Errorf("declared: %t, held: %q, of the registry as it is", known, early.held(camera))
	}
}

// Whenever an archivist dies that takes objects out, no object is half gone and
// listed as current, and the next one ends what it began.
func TestPurgeKilled(t *testing.T) {
	s := start(t)
	for i, step := range []struct {
		write string
		n     int
	}{{`^put changes/`, 1}, {`^put manifest/.*/p-`, 1}, {`^write removal\.`, 1}, {`^write removal\.`, 2}, {`^write notices of`, 1},
		{`^delete o/`, 1}, {`^put packs/`, 1}, {`^put manifest/.*/v-`, 1}, {`^put manifest/.*/v-`, 2}, {`^delete packs/`, 1},
		{`^write removal\.`, 3}, {`^write removal\.`, 4}, {`^publish .*state=Purged`, 1}, {`^publish decision/`, 1}, {`^publish decision/`, 2}} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %d after=%t", step.write, step.n, after), func(t *testing.T) {
				t.Parallel()
				l := s.site(t, fmt.Sprintf("kill-%d-%t", i, after))
				died := make(chan struct{})
				l.purgeAndDie(&mortality{step: regexp.MustCompile(step.write), n: step.n, after: after, freed: func() { close(died) }}, died)
			})
		}
	}
}

func (l *lab) purgeAndDie(m *mortality, died <-chan struct{}) {
	now := time.Now().UTC()
	at := func(i int) time.Time { return now.Add(time.Duration(i) * time.Millisecond) }
	raw := l.send(camera, at(0), "one")
	members := l.putPack(1, sent{camera, object{at(1), "two"}}, sent{mag, object{at(2), "three"}}, sent{camera, object{at(3), "four"}})
	for _, n := range members {
		l.announce(n)
	}
	stop := l.run(l.config("first"))
	l.await("all is listed", func() bool { return len(l.listed(camera)) == 3 && len(l.listed(mag)) == 1 })
	stop()
	runs := map[string]string{raw.ID: l.ask(raw, wire.StatePurged, "private"), members[0].ID: l.ask(members[0], wire.StatePurged, "private")}
	cfg := l.keeper("a")
	cfg.JetStream, cfg.Store = mortalJetStream{l.js, m}, mortalStore{l.store, m}
	stop = l.run(cfg)
	select {
	case <-died:
	case <-time.After(3 * time.Minute):
		l.t.Fatal("the archivist never came to the step at which it was to die")
	}
	for _, r := range slices.Concat(l.listed(camera), l.listed(mag)) {
		if r.State == wire.StateCurrent {
			l.intact(r.ID)
		}
	}
	for _, id := range l.announcedPurges() {
		if !l.is(id, wire.StatePurged) {
			l.t.Errorf("subscribers are told that %s is purged, and the manifest lists it as %s", id, l.record(id).State)
		}
	}
	l.run(l.keeper("b"))
	l.await("what was begun is done", func() bool {
		return l.is(raw.ID, wire.StatePurged) && l.is(members[0].ID, wire.StatePurged) &&
			!l.there(raw.Key) && !l.there(members[0].Key) && len(l.removals()) == 0
	})
	for id, run := range runs {
		l.await("the decision is published", func() bool {
			d, ok := l.decision(run)
			return ok && d.ID == id && d.Result == wire.DecisionDone
		})
		if n := len(slices.DeleteFunc(l.announcedPurges(), func(is string) bool { return is != id })); n != 1 {
			l.t.Errorf("%d notices say that %s is purged", n, id)
		}
	}
	stop()
	l.intact(members[1].ID, members[2].ID)
}

// Mirrors are asked for a removal once it is written. Readers that looked at the day until then find it changed, whenever an archivist
// died.
func TestPurgedDayChangesAfterKill(t *testing.T) {
	l := start(t).site(t, "hub")
	n := l.send(camera, time.Now().UTC(), "one")
	stop := l.run(l.config("first"))
	l.await("all is listed", func() bool { return len(l.listed(camera)) == 1 })
	stop()
	l.ask(n, wire.StatePurged, "private")
	died := make(chan struct{})
	m := &mortality{step: regexp.MustCompile(`^write removal\.`), n: 1, freed: func() { close(died) }}
	cfg := l.keeper("a")
	cfg.JetStream, cfg.Store = mortalJetStream{l.js, m}, mortalStore{l.store, m}
	stop = l.run(cfg)
	select {
	case <-died:
	case <-time.After(3 * time.Minute):
		t.Fatal("the archivist never wrote a removal")
	}
	parts := func() int {
		files, err := manifest.List(t.Context(), l.store, l.site, camera, wire.DayOf(n.ReceivedAt))
		if err != nil {
			t.Fatal(err)
		}
		return len(files.InEffect)
	}
	before := parts()
	if !l.is(n.ID, wire.StatePurged) || len(l.removals()) > 0 {
		t.Fatal("the archivist died elsewhere: the test shows nothing")
	}
	l.run(l.keeper("b"))
	l.await("its bytes are gone", func() bool { return !l.there(n.Key) && len(l.removals()) == 0 })
	if after := parts(); after <= before {
		t.Errorf("the day has %d files, as many as before the removal was written", after)
	}
	stop()
}

// announcedPurges are the objects that notices announce as purged, each once per notice.
func (l *lab) announcedPurges() []string {
	l.t.Helper()
	var ids []string
	for _, m := range l.noticeStream(wire.NoticeSubjects(l.site)) {
		if n, err := wire.Decode[wire.Notice](m.Data); err == nil && n.State == wire.StatePurged {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// decision is what was decided about the request of a run, if anything was.
func (l *lab) decision(run string) (wire.ArchiveDecision, bool) {
	l.t.Helper()
	messages := l.noticeStream(wire.DecisionSubject(l.site, "*", run))
	if len(messages) == 0 {
		return wire.ArchiveDecision{}, false
	}
	d, err := wire.Decode[wire.ArchiveDecision](messages[0].Data)
	if err != nil {
		l.t.Fatal(err)
	}
	return d, true
}

// noticeStream are the messages of the stream of notices on some subjects.
func (l *lab) noticeStream(subjects string) []stream.Message {
	l.t.Helper()
	epoch, _, err := stream.Epoch(l.t.Context(), l.js, wire.NoticeStream(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	reader := stream.NewReader(l.js, stream.ReaderConfig{Stream: wire.NoticeStream(l.site), Epoch: epoch, Subject: subjects})
	var all []stream.Message
	for {
		messages, err := reader.Next(l.t.Context(), 256, time.Second)
		if err != nil {
			l.t.Fatal(err)
		}
		all = append(all, messages...)
		if _, end := reader.Position(); end {
			return all
		}
	}
}
