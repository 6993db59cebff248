// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

func gapsCommand(o *backend.Options) *cobra.Command {
	var s selection
	var all bool
	var cause string
	var format output.Format
	cmd := &cobra.Command{
		Use:   "gaps",
		Short: "Show what is missing of what instruments should have observed, and why",
		Long: `Shows times of which an instrument's archive has nothing although something was due,
by day of observation. A gap is found, or closed by what comes late, within seven minutes
after it ends or two cadences have passed; that of datagrams when their segment is due, too.
Below the table stands up to when the instruments were compared.

Link         the instrument could not reach us, or still has it and owes it
Instrument   nothing points elsewhere: it did not observe. If its sender does not report and it
             is alone at its station, it may be the link
Refused      a gateway refused it: substorm archive ledger says why
Lost         it was received and lost here, or dropped
Undecodable  telemetry came in messages that nobody can read
Retracted    it was received, and is not shown any more

Daylight (spec.cadence.observes), maintenance and retirement are no gaps.`,
		Example: `  substorm archive gaps
  substorm archive gaps --instrument allsky-1 --since 2026-11-01 --until 2026-11-30 --all
  substorm archive gaps --cause Lost -o json`,
		Args: noNames,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cause != "" && !slices.Contains(wire.GapCauses(), wire.GapCause(cause)) {
				return usage.Errorf("--cause %s is unknown: choose one of %v", cause, wire.GapCauses())
			}
			return backend.WithJetStream(cmd.Context(), *o, func(b *backend.Backend, js jetstream.JetStream) error {
				days, err := readGaps(cmd.Context(), js, b.Code, &s)
				if err != nil {
					return err
				}
				gaps := chosen(days, all, wire.GapCause(cause))
				return output.Each(cmd.OutOrStdout(), format, gaps, func(w io.Writer) { printGaps(w, b.Code, gaps, days, time.Now()) })
			})
		},
	}
	s.addFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "also gaps that what came late has filled")
	cmd.Flags().StringVar(&cause, "cause", "", "only gaps of this cause")
	usage.OneOf(cmd, "cause", wire.GapCauses()...)
	format.Add(cmd, "one gap per line")
	return cmd
}

// Gap is what is missing of an instrument; one that goes over midnight is one gap.
type Gap struct {
	Instrument string `json:"instrument"`
	wire.MissingGap
}

// readGaps returns what is said of the chosen instruments and days of observation.
func readGaps(ctx context.Context, js jetstream.JetStream, site string, s *selection) (map[instrumentDay]wire.DayGaps, error) {
	within, err := s.days()
	if err != nil {
		return nil, err
	}
	days := map[instrumentDay]wire.DayGaps{}
	err = backend.Entries(ctx, js, wire.GapsBucket(site), ">", func(e backend.Entry) error {
		instrument, day, err := wire.ParseGapsKey(e.Key)
		if err != nil || !s.holdsInstrument(instrument) || !within.hold(day) {
			return err
		}
		d, err := wire.Decode[wire.DayGaps](e.Data)
		if err != nil {
			return fmt.Errorf("gaps %s: %w", e.Key, err)
		}
		days[instrumentDay{instrument, day}] = d
		return nil
	})
	return days, err
}

// chosen returns the gaps in order, those that meet at midnight as one.
func chosen(days map[instrumentDay]wire.DayGaps, all bool, cause wire.GapCause) []Gap {
	var gaps []Gap
	for at, d := range days {
		for _, g := range d.Gaps {
			if (g.ClosedAt == nil || all) && (cause == "" || g.Cause == cause) {
				gaps = append(gaps, Gap{at.instrument, g})
			}
		}
	}
	slices.SortFunc(gaps, func(a, b Gap) int {
		return cmp.Or(strings.Compare(a.Instrument, b.Instrument), strings.Compare(a.Channel, b.Channel), a.From.Compare(b.From))
	})
	var joined []Gap
	for _, g := range gaps {
		n := len(joined)
		if n == 0 || !joined[n-1].goesOn(g) {
			joined = append(joined, g)
			continue
		}
		last := &joined[n-1]
		last.To, last.Missing, last.ClosedAt = g.To, last.Missing+g.Missing+1, g.ClosedAt
	}
	return joined
}

// goesOn says whether the next gap is the rest of this one.
func (g *Gap) goesOn(next Gap) bool {
	return g.Instrument == next.Instrument && g.Channel == next.Channel && g.Cause == next.Cause && (g.ClosedAt == nil) == (next.ClosedAt == nil) &&
		g.To != nil && g.To.Equal(next.From) && g.To.Equal(g.To.Truncate(24*time.Hour))
}

func printGaps(w io.Writer, site string, gaps []Gap, days map[instrumentDay]wire.DayGaps, now time.Time) {
	switch {
	case len(days) == 0:
		fmt.Fprintf(w, "nothing was compared yet at site %s: the archivist looks every five minutes at instruments that have observed\n", site)
		return
	case len(gaps) == 0:
		fmt.Fprintf(w, "no gaps %s\n", compared(days))
		return
	}
	defer fmt.Fprintf(w, "\nInstruments were compared %s.\n", compared(days)) // behind the table
	t := output.Columns(w, "INSTRUMENT\tCHANNEL\tFROM\tTO\tFOR\tMISSING\tCAUSE\tCLOSED")
	defer t.Flush()
	for _, g := range gaps {
		to, closed := "-", "-"
		if g.To != nil {
			to = clock(*g.To)
		}
		if g.ClosedAt != nil {
			closed = clock(*g.ClosedAt)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", g.Instrument, cmp.Or(g.Channel, "-"), clock(g.From), to,
			g.Ends(now).Sub(g.From).Round(time.Second), g.Missing, g.Cause, closed)
	}
}

// compared says up to when instruments were compared with the archive, and which one is behind the others.
func compared(days map[instrumentDay]wire.DayGaps) string {
	until := map[string]time.Time{}
	for at, d := range days {
		if d.Until.After(until[at.instrument]) {
			until[at.instrument] = d.Until
		}
	}
	names := slices.SortedFunc(maps.Keys(until), func(a, b string) int { return cmp.Or(until[a].Compare(until[b]), strings.Compare(a, b)) })
	first, last := names[0], names[len(names)-1]
	if until[first].Equal(until[last]) {
		return "up to " + clock(until[last])
	}
	return fmt.Sprintf("up to %s (%s, the last) to %s (%s)", clock(until[first]), first, clock(until[last]), last)
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
