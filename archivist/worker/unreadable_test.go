// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// readableLines returns the last line of each object in those of a day's files that can be read.
func (l *lab) readableLines(instrument string, day wire.Day) map[string]wire.Record {
	l.t.Helper()
	files, err := manifest.List(l.t.Context(), l.store, l.site, instrument, day)
	if err != nil {
		l.t.Fatal(err)
	}
	lines := map[string]wire.Record{}
	for _, key := range files.InEffect {
		for r, err := range manifest.RecordsOf(l.t.Context(), l.store, []string{key}) {
			if err != nil {
				break
			}
			lines[r.ID] = r
		}
	}
	return lines
}

// confirmed says whether an object is known to be damaged.
func (l *lab) confirmed(instrument, id string) bool {
	l.t.Helper()
	e, err := l.kv(wire.StatusBucket(l.site)).Get(l.t.Context(), wire.DamageKey(instrument, id))
	if err != nil {
		return false
	}
	d, err := wire.Decode[wire.Damage](e.Value())
	return err == nil && d.Confirmed && d.Key == id
}

// A file of a manifest that cannot be read affects its day alone. New objects are listed, also those of that day;
// nothing of the day is deleted, and a rebuild brings the rest back.
func TestUnreadableManifest(t *testing.T) {
	s := start(t)
	today := time.Now().UTC()
	old := today.AddDate(0, 0, -60)
	for name, c := range map[string]struct {
		at        time.Time
		version   bool // it is a compacted day
		compacted bool // the compactor is through with the day
	}{
		"today":     {at: today},
		"compacted": {at: today, version: true},
		"old":       {at: old},
		"past":      {at: old, compacted: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := s.site(t, name)
			day := wire.DayOf(c.at)
			l.settings["other"] = wire.InstrumentEntry{Instrument: "other"}
			file := wire.ManifestPartKey(l.site, camera, day, 1)
			if c.version {
				file = wire.ManifestVersionKey(l.site, camera, day, 1)
			}
			put(t, l, file, "no manifest")
			if c.compacted {
				value, err := wire.Encode(wire.CompactCursor{Through: wire.DayOf(today.AddDate(0, 0, -2))})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := l.kv(wire.CursorBucket(l.site)).Put(t.Context(), wire.CompactCursorKey, value); err != nil {
					t.Fatal(err)
				}
			}
			kept, duplicate := l.putObject(camera, object{c.at, "kept"}), l.putObject(camera, object{c.at.Add(time.Millisecond), "kept"})
			duplicate.State, duplicate.DuplicateOf = wire.StateDuplicate, kept.ID
			header := wire.ManifestHeader{Site: l.site, Instrument: camera, Day: day, Writer: "before", Incarnation: "1"}
			if err := manifest.PutChanges(t.Context(), l.store, header, 1, []wire.Record{duplicate.Record}); err != nil {
				t.Fatal(err)
			}
			again := duplicate
			again.State, again.DuplicateOf = wire.StateCurrent, ""
			l.announce(again)
			news := l.send(camera, c.at.Add(2*time.Millisecond), "news")
			other := l.send("other", today, "other")
			l.telemetry(mag, today, 3)

			var log lockedBuffer
			cfg := l.keeper("a")
			cfg.Log = logTo(&log)
			l.run(cfg)
			l.await("others are listed", func() bool { return len(l.listed("other")) == 1 && len(l.listed(mag)) == 1 })
			want(t, "of the other", other.ID, l.listed("other")[0].ID)
			l.await("what is new is listed", func() bool { return l.readableLines(camera, day)[news.ID].State == wire.StateCurrent })
			l.await("the sweep comes to its end", func() bool {
				e, err := l.kv(wire.CursorBucket(l.site)).Get(t.Context(), wire.SweepCursorKey)
				return err == nil && e.Revision() > 0
			})
			_, state, err := stream.Epoch(t.Context(), l.js, wire.NoticeStream(l.site))
			if err != nil {
				t.Fatal(err)
			}
			l.await("the cursor goes on", func() bool { return l.cursor(wire.NoticeCursorKey).Next > state.LastSeq })
			l.await("the file is known to be damaged", func() bool { return l.confirmed(camera, file) })
			run := l.ask(news, wire.StateRetracted, "dark")
			l.await("a request is refused", func() bool { d, _ := l.decision(run); return d.Reason == "Unreadable" })

			lines := l.readableLines(camera, day)
			if len(lines) != 1 {
				t.Errorf("listed beside the file: %+v", lines)
			}
			keys := []string{kept.Key, news.Key, duplicate.Key}
			slices.Sort(keys)
			want(t, "stored", keys, l.stored(camera))
			want(t, "the ledger while nobody knows", wire.Totals{}, l.ledger(camera, day, wire.StepAnnounced))
			if n := strings.Count(log.String(), "go into the next part"); n != 1 || !strings.Contains(log.String(), file) || strings.Contains(log.String(), "gave up the lease") {
				t.Errorf("it is said %d times:\n%s", n, log.String())
			}

			l.rebuild()
			want(t, "current", []string{kept.ID, news.ID}, l.keys(camera, wire.StateCurrent))
			want(t, "duplicates", []string{duplicate.ID}, l.keys(camera, wire.StateDuplicate))
			l.await("the ledger knows the day", func() bool { return l.ledger(camera, day, wire.StepAnnounced).Objects == 3 })
			last := l.send(camera, c.at.Add(3*time.Millisecond), "last")
			l.await("the day goes on", func() bool { return slices.Contains(l.keys(camera, wire.StateCurrent), last.ID) })
		})
	}
}

// A new version of a name supersedes the one before even if a file of that one's day cannot be read, and a duplicate is
// recognized by what can be read. Objects that the file listed as retracted or purged stay so when the day is rebuilt.
func TestSupersedeUnreadable(t *testing.T) {
	l := start(t).site(t, "hub")
	now := time.Now().UTC()
	yesterday := now.AddDate(0, 0, -1)
	day := wire.DayOf(yesterday)
	first, retracted := l.notice(camera, object{yesterday, "first"}), l.notice(camera, object{yesterday.Add(time.Millisecond), "dark"})
	for n, of := range map[*wire.Notice]string{&first: "a.fits", &retracted: "b.fits"} {
		n.Name, n.Key, n.Version = of, wire.NamedKey(l.site, camera, of, 1), 1
		n.ID = n.Key
	}
	l.putNamed(first, "first")
	l.putNamed(retracted, "dark")
	original := l.putObject(camera, object{yesterday.Add(2 * time.Millisecond), "original"})
	purged := l.notice(camera, object{yesterday.Add(3 * time.Millisecond), "private"})
	l.putPart(camera, day, 1, first.Record, retracted.Record, original.Record, purged.Record)
	put(t, l, wire.ManifestPartKey(l.site, camera, day, 2), "no manifest")
	dark, private := retracted.Record, purged.Record
	dark.State, private.State = wire.StateRetracted, wire.StatePurged
	header := wire.ManifestHeader{Site: l.site, Instrument: camera, Day: day, Writer: "before", Incarnation: "1"}
	if err := manifest.PutChanges(t.Context(), l.store, header, 2, []wire.Record{dark, private}); err != nil {
		t.Fatal(err)
	}
	l.run(l.config("a"))
	for of, body := range map[string]string{"a.fits": "second", "b.fits": "light"} {
		n := l.notice(camera, object{now, body})
		n.Name, n.Key, n.Version = of, wire.NamedKey(l.site, camera, of, 2), 2
		n.ID, n.Supersedes = n.Key, wire.NamedKey(l.site, camera, of, 1)
		l.putNamed(n, body)
		l.announce(n)
	}
	duplicate := l.send(camera, now, "original")
	l.await("what is new is listed", func() bool { return len(l.readableLines(camera, wire.DayOf(now))) == 3 })
	l.await("the version before is superseded", func() bool { return l.readableLines(camera, day)[first.ID].State == wire.StateSuperseded })
	want(t, "the retracted one's line", wire.StateCurrent, l.readableLines(camera, day)[retracted.ID].State)
	want(t, "the duplicate", wire.StateDuplicate, l.readableLines(camera, wire.DayOf(now))[duplicate.ID].State)
	l.rebuild()
	for id, state := range map[string]wire.State{first.ID: wire.StateSuperseded, retracted.ID: wire.StateRetracted, original.ID: wire.StateCurrent, purged.ID: wire.StatePurged} {
		want(t, "after a rebuild", state, l.record(id).State)
	}
}
