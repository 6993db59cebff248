// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

// selection says which instruments and days are meant; the zero value means all.
type selection struct {
	instruments []string
	day         string
	// since and until are a range of days, both included.
	since, until string
	now          func() time.Time
	// shown says how far a command that reads all lists is; nil is silent.
	shown *progress.Progress
}

func (s *selection) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&s.instruments, "instrument", "i", nil, "only these instruments")
	s.addDays(cmd.Flags())
	cmd.PreRunE = func(*cobra.Command, []string) error {
		_, err := s.days()
		return err
	}
}

// noNames refuses arguments of a command that chooses its instruments by a flag.
func noNames(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage.Errorf("%s takes no names: choose instruments with --instrument %s, and days with --day", cmd.CommandPath(), args[0])
}

func (s *selection) addDays(f *pflag.FlagSet) {
	f.StringVar(&s.day, "day", "", "only this UTC `DAY`: YYYY-MM-DD, today or yesterday")
	f.StringVar(&s.since, "since", "", "from this UTC `DAY` on")
	f.StringVar(&s.until, "until", "", "up to this UTC `DAY`, included")
}

// days is a range of days, both ends included; empty ends are open.
type days struct{ first, last wire.Day }

func (d days) hold(day wire.Day) bool {
	return (d.first == "" || day >= d.first) && (d.last == "" || day <= d.last)
}

func (s *selection) days() (days, error) {
	if s.day != "" && (s.since != "" || s.until != "") {
		return days{}, usage.Errorf("--day chooses one day, --since and --until a range: give one of them")
	}
	first, err := s.parse(cmp.Or(s.day, s.since))
	if err != nil {
		return days{}, err
	}
	last, err := s.parse(cmp.Or(s.day, s.until))
	if err != nil {
		return days{}, err
	}
	if first != "" && last != "" && first > last {
		return days{}, usage.Errorf("--since %s comes after --until %s", first, last)
	}
	return days{first, last}, nil
}

func (s *selection) parse(day string) (wire.Day, error) {
	now := time.Now
	if s.now != nil {
		now = s.now
	}
	switch day {
	case "":
		return "", nil
	case "today":
		return wire.DayOf(now()), nil
	case "yesterday":
		return wire.DayOf(now().UTC().AddDate(0, 0, -1)), nil
	}
	parsed, err := wire.ParseDay(day)
	if err != nil {
		return "", usage.Errorf("%q is not a UTC day: write YYYY-MM-DD, today or yesterday", day)
	}
	return parsed, nil
}

func (s *selection) holdsInstrument(name string) bool {
	return len(s.instruments) == 0 || slices.Contains(s.instruments, name)
}

// instrumentDay is one list of the archive.
type instrumentDay struct {
	instrument string
	day        wire.Day
}

// lists yields the lists that the archive has within the selection, by
// instrument and then by day.
func (s *selection) lists(ctx context.Context, store objectstore.Store, site string) iter.Seq2[instrumentDay, error] {
	return func(yield func(instrumentDay, error) bool) {
		within, err := s.days()
		if err != nil {
			yield(instrumentDay{}, err)
			return
		}
		read := 0
		for instrument, err := range manifest.Instruments(ctx, store, site) {
			if err != nil {
				yield(instrumentDay{}, err)
				return
			}
			if !s.holdsInstrument(instrument) {
				continue
			}
			for day, err := range manifest.Days(ctx, store, site, instrument) {
				if err == nil && !within.hold(day) {
					continue
				}
				s.shown.Set(0, 0, "%d instrument days read, now %s of %s", read, day, instrument)
				read++
				if !yield(instrumentDay{instrument, day}, err) || err != nil {
					return
				}
			}
		}
	}
}

// records yields all that the manifests list within the selection: duplicates, and what was
// purged, too.
func (s *selection) records(ctx context.Context, store objectstore.Store, site string) iter.Seq2[wire.Notice, error] {
	return func(yield func(wire.Notice, error) bool) {
		for list, err := range s.lists(ctx, store, site) {
			if err != nil {
				yield(wire.Notice{}, err)
				return
			}
			for r, err := range manifest.Records(ctx, store, site, list.instrument, list.day) {
				if err != nil {
					err = fmt.Errorf("instrument %s, %s: %w", list.instrument, list.day, err)
				}
				if !yield(wire.Notice{Site: site, Instrument: list.instrument, Record: r}, err) || err != nil {
					return
				}
			}
		}
	}
}

// held is records without those whose bytes are not part of the archive.
func (s *selection) held(ctx context.Context, store objectstore.Store, site string) iter.Seq2[wire.Notice, error] {
	return func(yield func(wire.Notice, error) bool) {
		for n, err := range s.records(ctx, store, site) {
			if (err != nil || bucket.Holds(n.Record)) && !yield(n, err) {
				return
			}
		}
	}
}
