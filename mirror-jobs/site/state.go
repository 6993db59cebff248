// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// state is what earlier runs saw of the other Site and acted upon in full, in the bucket of cursors. Runs ask again for what is lost of it.
type state struct {
	partner string
	cursors jetstream.KeyValue
	root    rootState
}

// rootState is what is known of the root.
type rootState struct {
	// Selects is what the selection was: with another one all is asked for.
	Selects     string            `json:"selects"`
	ETag        string            `json:"etag,omitempty"`
	Instruments map[string]string `json:"instruments,omitempty"`
	// Confirms: the other Site waits for this mirror, and was sent what is here for all days with noted tags.
	Confirms bool `json:"confirms,omitempty"`
	// Unawaited says why the other Site does not wait for this mirror, and what that Site answered to a confirmation, as long as it refuses.
	Unawaited *wire.MirrorUnawaited `json:"unawaited,omitempty"`
	// Ledger is the one of the other Site in which that stands.
	Ledger string `json:"ledger,omitempty"`
	// Now is the latest time that the clock of the other Site showed and that could be believed.
	Now time.Time `json:"now,omitzero"`
	// Missing are the instruments that stand here and that the other Site does not offer, as runs found them.
	Missing map[string]missingState `json:"missing,omitempty"`
	// WentBack stays, whatever is selected, until a run with --force.
	WentBack *wire.MirrorWentBack `json:"wentBack,omitempty"`
	// Vanished are how many days of each instrument and month, and how many objects of each day, were found not to be listed any more.
	Vanished map[string]int `json:"vanished,omitempty"`
}

// missingState says why the other Site does not offer an instrument.
type missingState string

// The values of missingState. Stopped: too many were missing at once, so that nothing was done about it.
const (
	missingClosed  missingState = "Closed"
	missingAbsent  missingState = "Absent"
	missingStopped missingState = "Stopped"
)

// isNew says whether no run has acted upon an instrument that is missing.
func (s missingState) isNew() bool { return s == "" || s == missingStopped }

// tags are those of the months or the days of an instrument.
type tags struct {
	Selects string            `json:"selects"`
	Tags    map[string]string `json:"tags"`
	// Asked are days for which the archivist is asked for changes, and since when. They have no new tag until it has made them: it may
	// refuse.
	Asked map[string]time.Time `json:"asked,omitempty"`
	// Counted are how many objects of a day were retracted or purged for this mirror, or asked for: the safety stop has counted them.
	Counted map[string]int `json:"counted,omitempty"`
}

// removedState are the retractions and purges that the safety stop has counted.
type removedState struct {
	Days plan.Removed `json:"days,omitempty"`
}

// archivistPatience is how long the archivist may take for what it is asked for: that it lists within two minutes, also what a gateway
// had spooled, and longer only while it is replaced.
const archivistPatience = 15 * time.Minute

const (
	rootPart    = "pull-root"
	removedPart = "pull-removed"
)

func monthsPart(instrument string) string      { return "pull-months-" + instrument }
func daysPart(instrument, month string) string { return "pull-" + month + "-" + instrument }

func openState(ctx context.Context, js jetstream.JetStream, site, partner, selects string) (*state, error) {
	kv, err := js.KeyValue(ctx, wire.CursorBucket(site))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.CursorBucket(site), err)
	}
	s := &state{partner: partner, cursors: kv}
	if s.root, _, err = stream.Load[rootState](ctx, kv, s.key(rootPart)); err != nil {
		return nil, err
	}
	if s.root.Selects != selects {
		s.root = rootState{Selects: selects, Now: s.root.Now, Missing: s.root.Missing, WentBack: s.root.WentBack, Vanished: s.root.Vanished}
	}
	if s.root.Instruments == nil {
		s.root.Instruments = map[string]string{}
	}
	if s.root.Missing == nil {
		s.root.Missing = map[string]missingState{}
	}
	if s.root.Vanished == nil {
		s.root.Vanished = map[string]int{}
	}
	return s, nil
}

func (s *state) key(part string) string { return wire.MirrorCursorKey(s.partner, part) }

// keepRoot notes what is known of the root.
func (s *state) keepRoot(ctx context.Context) error {
	return stream.Save(ctx, s.cursors, s.key(rootPart), s.root)
}

// tagsOf returns those of a part.
func (s *state) tagsOf(ctx context.Context, part string) (tags, error) {
	t, _, err := stream.Load[tags](ctx, s.cursors, s.key(part))
	if err != nil {
		return t, err
	}
	if t.Selects != s.root.Selects {
		t = tags{Selects: s.root.Selects}
	}
	if t.Tags == nil {
		t.Tags = map[string]string{}
	}
	if t.Asked == nil {
		t.Asked = map[string]time.Time{}
	}
	if t.Counted == nil {
		t.Counted = map[string]int{}
	}
	return t, nil
}

func (s *state) setTags(ctx context.Context, part string, all tags) error {
	return stream.Save(ctx, s.cursors, s.key(part), all)
}

// known is what is known of an instrument's days that an answer tells of.
func (s *state) known(ctx context.Context, instrument string, lines []mirrorindex.DaysLine) (plan.Known, error) {
	months, err := s.tagsOf(ctx, monthsPart(instrument))
	if err != nil {
		return plan.Known{}, err
	}
	known := plan.Known{Months: months.Tags, Days: map[wire.Day]plan.KnownDay{}}
	read := map[string]bool{"": true}
	for _, line := range lines {
		month := mirrorindex.MonthOf(line.Day)
		if read[month] {
			continue
		}
		read[month] = true
		days, err := s.tagsOf(ctx, daysPart(instrument, month))
		if err != nil {
			return plan.Known{}, err
		}
		for day, tag := range days.Tags {
			known.Days[wire.Day(day)] = plan.KnownDay{Tag: tag}
		}
	}
	return known, nil
}

// removed returns what the safety stop has counted.
func (s *state) removed(ctx context.Context) (plan.Removed, error) {
	is, _, err := stream.Load[removedState](ctx, s.cursors, s.key(removedPart))
	return is.Days, err
}

// countRemoved counts some more, or forgets all that was counted.
func (s *state) countRemoved(ctx context.Context, count func(plan.Removed) plan.Removed) error {
	return change(ctx, s, removedPart, func(stored *removedState) { stored.Days = count(stored.Days) })
}

// change changes a record of the cursors, which another run may change at the same time.
func change[T any](ctx context.Context, s *state, part string, f func(*T)) error {
	key := s.key(part)
	for {
		record, revision, err := stream.Record[T](ctx, s.cursors, key)
		if err != nil {
			return err
		}
		f(&record)
		data, err := wire.Encode(record)
		switch {
		case err != nil:
		case revision == 0:
			_, err = s.cursors.Create(ctx, key, data)
		default:
			_, err = s.cursors.Update(ctx, key, data, revision)
		}
		if errors.Is(err, jetstream.ErrKeyExists) && ctx.Err() == nil { // another run was faster
			continue
		}
		if err != nil {
			return fmt.Errorf("%s of bucket %s: %w", key, s.cursors.Bucket(), err)
		}
		return nil
	}
}

// noted is what a run knows of a day once it has looked at it: its tag where it acted upon all of it, how many changes the
// archivist is asked for, and how many retractions and purges of it are counted by now; 0: as many as before.
type noted struct {
	tag            string
	asked, counted int
}

// note adds what a run knows of an instrument's days of one month; of a run that looks at a part of them, only what is counted. Overdue
// are the changes for which runs have asked for longer than archivistPatience.
func (s *state) note(ctx context.Context, instrument, month string, days map[string]noted, now time.Time, countOnly bool) (overdue int, err error) {
	part := daysPart(instrument, month)
	all, err := s.tagsOf(ctx, part)
	if err != nil {
		return 0, err
	}
	for day, entry := range days {
		if entry.counted > 0 {
			all.Counted[day] = entry.counted
		}
		if countOnly {
			continue
		}
		if entry.tag != "" {
			all.Tags[day] = entry.tag
		} else { // a forced run may know less of it than the one before
			delete(all.Tags, day)
		}
		since, before := all.Asked[day]
		switch {
		case entry.asked == 0:
			delete(all.Asked, day)
		case !before:
			all.Asked[day] = now.UTC()
		case now.Sub(since) > archivistPatience:
			overdue += entry.asked
		}
	}
	return overdue, s.setTags(ctx, part, all)
}
