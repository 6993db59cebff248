// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/objectstore"
)

const (
	// progressEvery is how often a long command says how far it is.
	progressEvery = 5 * time.Second
	// surveyAge is when an object must be listed, after it was stored: the sweep of
	// a gateway goes by the same.
	surveyAge = 10 * time.Minute
)

// survey compares the manifests of a selection with what the bucket says by itself.
type survey struct {
	selection
	age     time.Duration
	scratch string

	store      objectstore.Store
	site       string
	out, notes io.Writer
}

func (s *survey) addFlags(cmd *cobra.Command, age string) {
	s.selection.addFlags(cmd.Flags())
	cmd.Flags().DurationVar(&s.age, "age", surveyAge, age)
	cmd.Flags().StringVar(&s.scratch, "scratch-dir", os.TempDir(), "folder for what was found: about 1 KB an object")
}

func (s *survey) open(cmd *cobra.Command, b *backend.Backend, store objectstore.Store) {
	s.store, s.site, s.out, s.notes = store, b.Code, cmd.OutOrStdout(), cmd.ErrOrStderr()
}

// comparison compares one list. Close what it returns.
type comparison func(context.Context) (*bucket.Plan, error)

// each scans the bucket, and has every list of the selection looked at, in order. Of what
// lies under keys of ours and cannot be read as ours is told to foreign, one at a time, before
// that.
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
	for _, of := range lists {
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
	said := time.Now()
	found, err := bucket.Scan(ctx, bucket.Config{Store: s.store, Site: s.site, Instrument: s.holdsInstrument, Day: within.hold, ScratchDir: s.scratch,
		Foreign: func(key string, err error) {
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				failed = foreign(key, err)
			}
		},
		Progress: func(objects, packs int64) {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(said) >= progressEvery {
				said = time.Now()
				fmt.Fprintf(s.notes, "looked at %d objects and %d packs\n", objects, packs)
			}
		}})
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

// print prints a line of what is found.
func (s *survey) print(kind bucket.DifferenceKind, of bucket.List, id, detail string) error {
	_, err := fmt.Fprintf(s.out, "%-10s  %-20s  %s  %s%s\n", kind, of.Instrument, of.Day, id, detail)
	return err
}
