// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

// state is what earlier runs saw of the other Site and acted upon in full, in the bucket of cursors. What is lost of it is
// asked for anew.
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
}

// tags are those of the months or the days of an instrument.
type tags struct {
	Selects string            `json:"selects"`
	Tags    map[string]string `json:"tags"`
}

const rootPart = "pull-root"

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
		s.root = rootState{Selects: selects}
	}
	if s.root.Instruments == nil {
		s.root.Instruments = map[string]string{}
	}
	return s, nil
}

func (s *state) key(part string) string { return wire.MirrorCursorKey(s.partner, part) }

// keepRoot notes what is known of the root.
func (s *state) keepRoot(ctx context.Context) error {
	return stream.Save(ctx, s.cursors, s.key(rootPart), s.root)
}

// tagsOf returns those of a part.
func (s *state) tagsOf(ctx context.Context, part string) (map[string]string, error) {
	t, _, err := stream.Load[tags](ctx, s.cursors, s.key(part))
	if err != nil {
		return nil, err
	}
	if t.Selects != s.root.Selects || t.Tags == nil {
		return map[string]string{}, nil
	}
	return t.Tags, nil
}

func (s *state) setTags(ctx context.Context, part string, all map[string]string) error {
	return stream.Save(ctx, s.cursors, s.key(part), tags{s.root.Selects, all})
}

// known is what is known of an instrument's days that an answer tells of.
func (s *state) known(ctx context.Context, instrument string, lines []mirrorindex.DaysLine) (plan.Known, error) {
	months, err := s.tagsOf(ctx, monthsPart(instrument))
	if err != nil {
		return plan.Known{}, err
	}
	known := plan.Known{Months: months, Days: map[wire.Day]plan.KnownDay{}}
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
		for day, tag := range days {
			known.Days[wire.Day(day)] = plan.KnownDay{Tag: tag}
		}
	}
	return known, nil
}

// note adds what a run acted upon in full to what is known of an instrument's days of one month.
func (s *state) note(ctx context.Context, instrument, month string, done map[string]string) error {
	if len(done) == 0 {
		return nil
	}
	part := daysPart(instrument, month)
	all, err := s.tagsOf(ctx, part)
	if err != nil {
		return err
	}
	maps.Copy(all, done)
	return s.setTags(ctx, part, all)
}
