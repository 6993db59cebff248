// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// sources makes a Site's streams source another's on the same server, which to
// them is as one far away.
func (l *lab) sources(leaf *lab, maxBytes int64) {
	l.t.Helper()
	for ours, theirs := range map[string]jetstream.StreamSource{
		wire.ObservationStream(l.site): {Name: wire.ObservationStream(leaf.site), FilterSubject: wire.ObservationSubjects(leaf.site), OptStartSeq: 1},
		wire.NoticeStream(l.site):      {Name: wire.NoticeStream(leaf.site), FilterSubject: wire.NoticeSubjects(leaf.site), OptStartSeq: 1},
	} {
		s, err := l.js.Stream(l.t.Context(), ours)
		if err != nil {
			l.t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		cfg.MaxBytes = maxBytes
		cfg.Sources = []*jetstream.StreamSource{&theirs}
		if _, err := l.js.UpdateStream(l.t.Context(), cfg); err != nil {
			l.t.Fatal(err)
		}
	}
}

func (l *lab) state(name string) jetstream.StreamState {
	l.t.Helper()
	_, state, err := stream.Epoch(l.t.Context(), l.js, name)
	if err != nil {
		l.t.Fatal(err)
	}
	return state
}

// countOf returns how many messages the telemetry stream holds on subjects.
func (l *lab) countOf(subjects string) uint64 {
	l.t.Helper()
	s, err := l.js.Stream(l.t.Context(), wire.ObservationStream(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	info, err := s.Info(l.t.Context(), jetstream.WithSubjectFilter(subjects))
	if err != nil {
		l.t.Fatal(err)
	}
	count := uint64(0)
	for _, n := range info.State.Subjects {
		count += n
	}
	return count
}

// Messages that a leaf sent are skipped: they are in no manifest, segment or ledger, refused nowhere, and not swept
// for. They are trimmed all the same, up to the newest, which keeps a server that has no index of what it sourced from
// taking everything a second time: an older one, or a replica that came later.
func TestLeafIsPassedOver(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	servers := servers{testenv.NATS(t, testenv.NATSOptions{Dir: folder}), testenv.SharedMinIO(t, testenv.MinIOOptions{})}
	hub, leaf := servers.site(t, "thule"), servers.site(t, "north")
	now := time.Now().UTC()
	hub.sources(leaf, 64<<20)
	for i := range 30 {
		leaf.telemetry(mag, now, 2)
		leaf.send(camera, now.Add(time.Duration(i)*time.Millisecond), fmt.Sprint("frame of the leaf ", i))
	}
	own := hub.send(camera, now, "frame")
	hub.telemetry(mag, now, 3)
	observations, notices := wire.ObservationStream("thule"), wire.NoticeStream("thule")
	hub.await("all is sourced", func() bool { return hub.state(observations).LastSeq == 31 && hub.state(notices).LastSeq == 31 })

	cfg := hub.config("a")
	var log lockedBuffer
	cfg.Log = logTo(&log)
	cfg.TrimInterval, cfg.ObservationRetention, cfg.NoticeRetention = 200*time.Millisecond, time.Millisecond, time.Millisecond
	stop := hub.run(cfg)
	hub.await("the hub's own is archived", func() bool { return cmp.Equal(numbers(1, 3), hub.datagrams(mag)) })
	hub.await("the rest is trimmed", func() bool { return hub.state(observations).Msgs == 1 && hub.state(notices).Msgs == 1 })
	// They are counted behind the trimming.
	hub.await("what is trimmed is counted", func() bool {
		return gauge(t, cfg, "substorm_archivist_trimmed_messages_total") == float64(hub.state(observations).LastSeq-1+hub.state(notices).LastSeq-1)
	})
	stop()
	want(t, "objects listed", []string{own.Key}, hub.keys(camera, wire.StateCurrent))
	want(t, "notices refused", 0.0, gauge(t, cfg, "substorm_manifest_notices_refused_total"))
	want(t, "objects found by the sweep", 0.0, gauge(t, cfg, "substorm_sweep_found_total"))
	want(t, "what the archivist logs of the leaf", false, strings.Contains(log.String(), "north"))
	for info, err := range hub.store.List(t.Context(), "", "") {
		if err != nil || strings.Contains(info.Key, "north") {
			t.Errorf("the hub's bucket holds %s, %v", info.Key, err)
		}
	}

	before := hub.state(observations).LastSeq
	servers.nats.Kill()
	removeIndex(t, folder)
	servers.nats.Start()
	hub.js, leaf.js = servers.nats.JetStream(t), servers.nats.JetStream(t)
	leaf.telemetry(mag, now, 1)
	newest := func(of *lab) string {
		s, err := of.js.Stream(t.Context(), wire.ObservationStream(of.site))
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.GetLastMsgForSubject(t.Context(), wire.ObservationSubject(leaf.site, mag, channel))
		if err != nil {
			t.Fatal(err)
		}
		return m.Header.Get(wire.HeaderID)
	}
	// A leaf's messages are sourced in their order: what came a second time would come before the next.
	hub.await("the next is sourced", func() bool { return hub.state(observations).LastSeq > before && newest(hub) == newest(leaf) })
	want(t, "messages that came after the kill", before+1, hub.state(observations).LastSeq)
}

// removeIndex removes what a server noted of its sources, if it did so yet.
func removeIndex(t *testing.T, folder string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "sources.db" {
			err = os.Remove(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A leaf that sends what it received in weeks fills a stream in which the hub's
// own is not archived yet: the leaf's older messages go, and the hub's own find space.
func TestLeafMakesSpace(t *testing.T) {
	servers := start(t)
	hub, leaf := servers.site(t, "thule"), servers.site(t, "north")
	now := time.Now().UTC()
	hub.settings[mag] = wire.InstrumentEntry{Instrument: mag, SegmentAgeMillis: time.Hour.Milliseconds(), SegmentSize: 64 << 20}
	hub.telemetry(mag, now, 1)
	for range 120 { // some 550 KiB
		leaf.telemetry(mag, now, 100)
	}
	hub.sources(leaf, 256<<10)
	hub.run(hub.config("a"))
	last := leaf.state(wire.ObservationStream("north")).LastSeq
	hub.await("the leaf's newest has come", func() bool {
		newest, err := stream.LastOf(t.Context(), hub.js, wire.ObservationStream("thule"), wire.ObservationSubjects("north"))
		if err != nil {
			t.Fatal(err)
		}
		return newest == last+1
	})
	hub.await("there is space for the hub's own", func() bool {
		state := hub.state(wire.ObservationStream("thule"))
		return float64(state.Bytes) < fullFrom*(256<<10)
	})
	hub.telemetry(mag, now, 1)
	want(t, "messages of the hub's own", 2, hub.countOf(wire.ObservationSubjects("thule")))
}
