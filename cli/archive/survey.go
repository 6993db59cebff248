// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/wire"
)

// surveyAge is when an object must be listed, after it was stored: the sweep of
// a gateway goes by the same.
const surveyAge = 10 * time.Minute

// survey compares the manifests of a selection with what the bucket says by itself.
type survey struct {
	selection
	age     time.Duration
	scratch string

	store      objectstore.Store
	site       string
	format     output.Format
	out, notes io.Writer
	// failed are the packs that gateways report as failed, as far as that is known.
	failed map[string]bool
	data   *output.Encoder
	// at is how many of all lists were looked at.
	at, of int64
}

func (s *survey) addFlags(cmd *cobra.Command, age string) {
	s.selection.addFlags(cmd)
	s.format.Add(cmd, "one finding per line")
	cmd.Flags().DurationVar(&s.age, "age", surveyAge, age)
	cmd.Flags().StringVar(&s.scratch, "scratch-dir", os.TempDir(), "folder for what was found: about 1 KB an object")
}

// open prepares a run. Call what it returns at its end.
func (s *survey) open(cmd *cobra.Command, b *backend.Backend, store objectstore.Store) (end func()) {
	s.shown = progress.Start(cmd.ErrOrStderr(), false, nil)
	s.store, s.site, s.out, s.notes = store, b.Code, s.shown.Above(cmd.OutOrStdout()), s.shown.Above(cmd.ErrOrStderr())
	s.data = s.format.Encoder(s.out)
	return s.shown.Stop
}

// comparison compares one list. Close what it returns.
type comparison func(context.Context) (*bucket.Plan, error)

// each scans the bucket, and has every list of the selection looked at, in order. Before that, it calls
// foreign for each object that lies under a key of ours and cannot be read as ours, one at a time.
func (s *survey) each(ctx context.Context, foreign func(key string, err error) error, look func(context.Context, bucket.List, comparison) error) error {
	found, err := s.scan(ctx, foreign)
	if err != nil {
		return err
	}
	defer func() { _ = found.Close() }()
	lists, err := s.all(ctx, found)
	if err != nil {
		return err
	}
	before := time.Now().Add(-s.age)
	if s.age == 0 {
		before = time.Time{}
	}
	s.of = int64(len(lists))
	for i, of := range lists {
		s.at = int64(i)
		s.shown.Set(s.at, s.of, "%d of %d instrument days, now %s of %s", s.at, s.of, of.Day, of.Instrument)
		err := look(ctx, of, func(ctx context.Context) (*bucket.Plan, error) { return s.compare(ctx, found, of, before) })
		if err != nil {
			return fmt.Errorf("instrument %s, %s: %w", of.Instrument, of.Day, err)
		}
	}
	return nil
}

func (s *survey) compare(ctx context.Context, found *bucket.Found, of bucket.List, before time.Time) (*bucket.Plan, error) {
	merged, err := found.Merge(ctx, of, before)
	if err != nil {
		return nil, err
	}
	p, err := bucket.Compare(ctx, s.store, s.site, merged)
	if err != nil {
		merged.Close()
	}
	return p, err
}

// scan reads what the bucket says by itself. An error of foreign is returned once all is
// read.
func (s *survey) scan(ctx context.Context, foreign func(key string, err error) error) (*bucket.Found, error) {
	within, err := s.days()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var failed error
	found, err := bucket.Scan(ctx, bucket.Config{Store: s.store, Site: s.site, Instrument: s.holdsInstrument, Day: within.hold, Failed: s.failed, ScratchDir: s.scratch,
		Foreign: func(key string, err error) {
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				failed = foreign(key, err)
			}
		},
		Progress: func(objects, packs int64) { s.shown.Set(0, 0, "looked at %d objects and %d packs", objects, packs) }})
	if err == nil && failed != nil {
		_ = found.Close()
		return nil, failed
	}
	return found, err
}

// all are the lists of the selection: of what was found and of what is listed.
func (s *survey) all(ctx context.Context, found *bucket.Found) ([]bucket.List, error) {
	lists := found.Lists()
	for l, err := range s.lists(ctx, s.store, s.site) {
		if err != nil {
			return nil, err
		}
		lists = append(lists, bucket.List{Instrument: l.instrument, Day: l.day})
	}
	slices.SortFunc(lists, bucket.List.Compare)
	return slices.Compact(lists), nil
}

// nowhere stands for the instrument and day of what does not say them.
const nowhere = "-"

// Finding is what verify and rebuild print.
type Finding struct {
	Kind       bucket.DifferenceKind `json:"kind"`
	Instrument string                `json:"instrument"`
	Day        wire.Day              `json:"day"`
	// ID of the object, or the key of what is none.
	ID     string `json:"id"`
	Detail string `json:"detail,omitempty"`
}

// print prints a finding.
func (s *survey) print(kind bucket.DifferenceKind, of bucket.List, id, detail string) error {
	if s.format.IsData() {
		return s.data.Encode(Finding{kind, of.Instrument, of.Day, id, detail})
	}
	_, err := fmt.Fprintln(s.out, strings.TrimSpace(fmt.Sprintf("%-10s  %-20s  %s  %s  %s", kind, of.Instrument, of.Day, id, detail)))
	return err
}
