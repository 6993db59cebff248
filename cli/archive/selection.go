// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

// selection says which instruments and days are meant; the zero value means all.
type selection struct {
	instruments []string
	day         string
	from, to    string
	now         func() time.Time
}

func (s *selection) addFlags(f *pflag.FlagSet) {
	f.StringSliceVarP(&s.instruments, "instrument", "i", nil, "only these instruments")
	f.StringVar(&s.day, "day", "", "only this UTC day: 2006-01-02, today or yesterday")
	f.StringVar(&s.from, "from", "", "from this UTC day on")
	f.StringVar(&s.to, "to", "", "up to this UTC day, included")
}

// days is a range of days, both ends included; empty ends are open.
type days struct{ first, last wire.Day }

func (d days) hold(day wire.Day) bool {
	return (d.first == "" || day >= d.first) && (d.last == "" || day <= d.last)
}

func (s *selection) days() (days, error) {
	if s.day != "" && (s.from != "" || s.to != "") {
		return days{}, usage.Errorf("--day chooses one day, --from and --to a range: give one of them")
	}
	from, to := s.from, s.to
	if s.day != "" {
		from, to = s.day, s.day
	}
	first, err := s.parse(from)
	if err != nil {
		return days{}, err
	}
	last, err := s.parse(to)
	if err != nil {
		return days{}, err
	}
	if first != "" && last != "" && first > last {
		return days{}, usage.Errorf("--from %s comes after --to %s", first, last)
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
		return "", usage.Errorf("%q is no UTC day: write 2006-01-02, today or yesterday", day)
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
				if !yield(instrumentDay{instrument, day}, err) || err != nil {
					return
				}
			}
		}
	}
}

// records yields all that the manifests list within the selection: repeats, and what was
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
