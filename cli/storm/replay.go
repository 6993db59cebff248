// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/operator/surge"
	"github.com/substorm/substorm/operator/surge/simulate"
)

// maxDraws bounds what a run keeps in memory, and how long it takes.
const maxDraws = 10_000

// replayOptions are the flags of `storm replay`.
type replayOptions struct {
	manifests []string
	site      string
	seed      uint64
	draws     int
	plot      string
	output    output.Format
	quiet     bool
	// declared says that --manifests is given.
	declared bool
}

func replayCommand() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay KP.csv",
		Short: "Run a recorded Kp index through policies in virtual time: what they refuse, and how many pods they take",
		Long: `Simulates a pool of feed servers in the time of a recorded Kp index, many times
over. Each draw decides which storms bring a crowd, 0.5 to 12 hours after they
begin, and how large: 2 to 8 times the load of a calm day. Some crowds come
without a storm, and in some draws the signal is away for 6 to 48 hours. In
each draw, each policy meets the same:

` + policies() + `
The operator decides with the same code. A value of Kp is known 15 minutes
after its three hours. The levels are those of the Site in --manifests, of
which floors of all FeedServers count. Without it they are: storm, Kp 5 and
more, at least 6 pods; severe, Kp 7 and more, at least 12; each held for 12
hours, then released by one pod in 10 minutes.

A calm day needs 3 pods on average. Each policy has ` + fmt.Sprintf("%d to %d pods: replicas and", simulate.MinPods, simulate.MaxPods) + `
maxReplicas of FeedServers in --manifests are not played.

KP.csv has the header time,kp, and lines such as 2015-03-17T12:00:00Z,7.7, one
for each three hours; lines that begin with # are comments. It may also have
columns bz and speed, in nT and km/s: then Bz of -10 and less for 10 minutes at
a speed of 500 and more makes a storm, too. Rules of a Site that ask for what
the file does not have are left out, and named below the table.`,
		Example: `  substorm storm replay kp.csv
  substorm storm replay kp.csv --manifests site.yaml
  substorm storm replay kp.csv --draws 20 --seed 7 --plot storm.svg`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.declared = cmd.Flags().Changed("manifests"); cmd.Flags().Changed("site") && !o.declared {
				return usage.Errorf("--site chooses one of the Sites in --manifests: set that, too")
			}
			return o.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.manifests, "manifests", nil, "files or folders with the Site whose levels are played; other kinds are passed over; it may be given several times")
	f.StringVar(&o.site, "site", "", "the Site of --manifests (default: the only one)")
	_ = cmd.RegisterFlagCompletionFunc("site", o.completeSite) // it is declared in the line above
	f.Uint64Var(&o.seed, "seed", 1, "of the draws: the same seed draws the same")
	f.IntVar(&o.draws, "draws", 200, "how many draws, 1 to 10000")
	f.StringVar(&o.plot, "plot", "", "file for a picture (SVG) of the greatest storm in the first draw that has a crowd then")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "show no progress")
	o.output.Add(cmd, "one document")
	return cmd
}

// policies lists those that are compared, a line each.
func policies() string {
	var all strings.Builder
	for _, kind := range simulate.Kinds(nil) {
		fmt.Fprintf(&all, "  %-17s %s\n", kind.Name, kind.Short)
	}
	return all.String()
}

// report is what -o json prints.
type report struct {
	File     string   `json:"file"`
	Seed     uint64   `json:"seed"`
	Draws    int      `json:"draws"`
	Policies []policy `json:"policies"`
	// Notes say what was not played.
	Notes []string `json:"notes"`
}

// policy is what one came to. Work is in hours of a full pod.
type policy struct {
	Policy       string                `json:"policy"`
	RefusedWork  simulate.Distribution `json:"refusedWork"`
	RefusedShare simulate.Distribution `json:"refusedShare"`
	PodHours     simulate.Distribution `json:"podHours"`
	// PodHoursToOracle is in each draw to those of the oracle that keeps pods as full as the others do.
	PodHoursToOracle simulate.Distribution `json:"podHoursToOracle"`
	ScaleUps         simulate.Distribution `json:"scaleUps"`
	NeedlessScaleUps simulate.Distribution `json:"needlessScaleUps"`
}

func (o *replayOptions) run(ctx context.Context, file string, out, messages io.Writer) error {
	if o.draws < 1 || o.draws > maxDraws {
		return usage.Errorf("--draws %d: 1 to %d", o.draws, maxDraws)
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	recorded, err := simulate.Read(file, f)
	_ = f.Close() // it was only read
	if err != nil {
		return err
	}
	levels := recorded.Levels()
	notes := []string{fmt.Sprintf("Each policy has %d to %d pods, and a calm day needs 3 on average.", simulate.MinPods, simulate.MaxPods)}
	if o.declared {
		if levels, err = levelsOf(ctx, o.manifests, o.site); err != nil {
			return err
		}
		notes[0] += " Replicas and maxReplicas of FeedServers are not played."
		var left []string
		levels, left = playable(levels, recorded, file)
		notes = append(notes, left...)
	}
	kinds := simulate.Kinds(levels)
	results, err := o.compare(ctx, recorded, kinds, messages)
	if err != nil {
		return err
	}
	all := o.sum(file, kinds, results)
	all.Notes = notes
	if err := output.One(out, o.output, all, all.table); err != nil || o.plot == "" {
		return err
	}
	return o.draw(recorded, kinds, messages)
}

func (o *replayOptions) compare(ctx context.Context, recorded simulate.Recording, kinds []simulate.Kind, messages io.Writer) ([][]simulate.Result, error) {
	var done atomic.Int64
	shown := progress.Start(messages, o.quiet, func() progress.State {
		n := done.Load()
		return progress.State{Done: n, Total: int64(o.draws), Text: fmt.Sprintf("%d of %d draws", n, o.draws)}
	})
	defer shown.Stop()
	return simulate.Compare(ctx, kinds, o.draws, func(n int) *simulate.Scenario { return simulate.Draw(recorded, o.seed, n) }, func(n int) { done.Store(int64(n)) })
}

func (o *replayOptions) sum(file string, kinds []simulate.Kind, results [][]simulate.Result) *report {
	all := &report{File: file, Seed: o.seed, Draws: o.draws}
	var oracle []simulate.Result
	for i, kind := range kinds {
		if kind.Name == simulate.NameOracle {
			oracle = results[i]
		}
	}
	for i, kind := range kinds {
		toOracle := make([]simulate.Result, o.draws)
		for n := range toOracle {
			toOracle[n].PodHours = results[i][n].PodHours / oracle[n].PodHours
		}
		hours := func(r *simulate.Result) float64 { return r.PodHours }
		all.Policies = append(all.Policies, policy{
			Policy:           kind.Name,
			RefusedWork:      simulate.Of(results[i], func(r *simulate.Result) float64 { return r.Refused }),
			RefusedShare:     simulate.Of(results[i], (*simulate.Result).RefusedShare),
			PodHours:         simulate.Of(results[i], hours),
			PodHoursToOracle: simulate.Of(toOracle, hours),
			ScaleUps:         simulate.Of(results[i], func(r *simulate.Result) float64 { return float64(r.ScaleUps) }),
			NeedlessScaleUps: simulate.Of(results[i], func(r *simulate.Result) float64 { return float64(r.Needless) }),
		})
	}
	return all
}

func (r *report) table(w io.Writer) {
	t := output.Columns(w, "POLICY\tREFUSED, MEDIAN\tP95\tMOST\tPOD-HOURS\tTO THE ORACLE'S\tSCALE-UPS\tNEEDLESS")
	for _, p := range r.Policies {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%.0f\t%.2f\t%.0f\t%.0f\n", p.Policy, 60*p.RefusedWork.Median, 60*p.RefusedWork.P95, 60*p.RefusedWork.Most,
			p.PodHours.Median, p.PodHoursToOracle.Median, p.ScaleUps.Median, p.NeedlessScaleUps.Median)
	}
	_ = t.Flush() // to a buffer
	fmt.Fprintf(w, "\n%d draws, seed %d; medians of pod-hours and scale-ups. Refused is work, in minutes of a full pod.\n", r.Draws, r.Seed)
	fmt.Fprintln(w, "A scale-up is needless if the pods of before would have been enough for an hour.")
	for _, note := range r.Notes {
		fmt.Fprintln(w, note)
	}
}

// draw writes the picture. It is of the days around the greatest storm.
func (o *replayOptions) draw(recorded simulate.Recording, kinds []simulate.Kind, messages io.Writer) error {
	kp := recorded[surge.Kp]
	shown := window(kp)
	scenario, number, crowd := o.withCrowd(recorded, shown)
	p := Picture{Shown: shown, Kp: kp, Title: fmt.Sprintf("Draw %d of seed %d: %s to %s", number, o.seed, shown.From.Format(time.DateOnly), shown.To.Format(time.DateOnly))}
	if !crowd {
		p.Title += ", without a crowd"
	}
	for _, kind := range kinds {
		if kind.Name == simulate.NameHPA || kind.Name == simulate.NameOurs || kind.Name == simulate.NameWithoutSignal {
			p.Runs = append(p.Runs, Run{kind.Name, simulate.Run(scenario, kind, true).Points})
		}
	}
	if err := os.WriteFile(o.plot, p.SVG(), 0o666); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	if !o.quiet {
		fmt.Fprintf(messages, "the picture is in %s\n", o.plot)
		if !crowd {
			fmt.Fprintln(messages, "no draw has a crowd in the time that it shows: make more with --draws, or others with --seed")
		}
	}
	return nil
}

// withCrowd is the first draw that has a crowd in the time that is shown, and its number; the first draw of all if none has.
func (o *replayOptions) withCrowd(recorded simulate.Recording, shown simulate.Span) (s *simulate.Scenario, number int, found bool) {
	for n := range o.draws {
		if s := simulate.Draw(recorded, o.seed, n); hasCrowd(s, shown) {
			return s, n, true
		}
	}
	return simulate.Draw(recorded, o.seed, 0), 0, false
}

// window is three days around the greatest value.
func window(kp []surge.Sample) simulate.Span {
	most := kp[0]
	for _, one := range kp {
		if one.Value > most.Value {
			most = one
		}
	}
	from := most.From.Truncate(24 * time.Hour)
	s := simulate.Span{From: from, To: from.Add(72 * time.Hour)}
	if first := kp[0].From; s.From.Before(first) {
		s.From = first
	}
	if last := kp[len(kp)-1].To; s.To.After(last) {
		s.To = last
	}
	return s
}

func hasCrowd(s *simulate.Scenario, in simulate.Span) bool {
	for _, c := range s.Crowds {
		if !c.Begins.Before(in.From) && c.Begins.Before(in.To) {
			return true
		}
	}
	return false
}
