// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

var errReportDiffers = errors.New("the totals differ from the ledger's")

// ReportCommand returns `substorm report`.
func ReportCommand() *cobra.Command {
	o := &backend.Options{}
	var s selection
	var format string
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Report what a time brought: expected, received, late, missing, downloaded",
		Long: `Reports, for each instrument, what the archive lists of the days of receipt from --from
to --to, what was expected of these days of observation and is missing, and what
was downloaded. It ends by saying whether its totals are those of the ledger, and
exits with 1 where they are not: it counts what the manifests list, the ledger what
gateways received.

EXPECTED   observations that were due, by cadence and what the instrument observes
RECEIVED   objects and datagrams that are listed, without repeats
LATE       of these, what is backfill: it came later than cadence.lateAfter was then
REPEATED   what was there already and was taken back
EXPIRED    what spec.archive.retention does not keep any longer
DAMAGED    objects that are not what was received any more: substorm archive verify
COVERAGE   the part of the time in which something was due that has no gap
GAPS       how long something is missing, by cause: substorm gaps shows each
MIRRORED   what each partner confirmed that it has; - where there is none

-o json prints the report as one object.`,
		Example: `  substorm report --from 2026-11-01 --to 2026-11-30
  substorm report --day yesterday --instrument allsky-1
  substorm report --day yesterday -o json | jq .agree`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.day == "" && s.from == "" && s.to == "" {
				s.day = "yesterday"
			}
			if _, err := s.days(); err != nil {
				return err
			}
			if err := output.Check(format); err != nil {
				return err
			}
			return backend.With(cmd.Context(), *o, func(b *backend.Backend, store objectstore.Store, js jetstream.JetStream) error {
				r, err := ReadReport(cmd.Context(), store, js, b.Code, &s, time.Now())
				if err != nil {
					return err
				}
				err = r.tell(cmd.OutOrStdout(), format)
				if format == output.JSON {
					return err
				}
				return errors.Join(err, r.Damage.print(cmd.ErrOrStderr()))
			})
		},
	}
	o.AddFlags(cmd.Flags())
	s.addFlags(cmd.Flags())
	cmd.Flags().StringVarP(&format, "output", "o", "", "json")
	return cmd
}

// tell prints a report. It is an error where its totals are not those of the ledger.
func (r *Report) tell(w io.Writer, format string) error {
	var err error
	if format == output.JSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		err = enc.Encode(r)
	} else {
		err = r.print(w)
	}
	if err == nil && !r.Agree {
		err = errReportDiffers
	}
	return err
}

func (r *Report) print(w io.Writer) error {
	fmt.Fprintf(w, "Site %s, %s to %s; the ledger is closed to %s\n\n", r.Site, orDash(string(r.From)), orDash(string(r.To)), orDash(string(r.ClosedTo)))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "INSTRUMENT\tEXPECTED\tRECEIVED\tBYTES\tLATE\tREPEATED\tRETRACTED\tPURGED\tEXPIRED\tDAMAGED\tCOVERAGE\tGAPS\t"+r.mirrorTitles())
	for i := range r.Instruments {
		in := &r.Instruments[i]
		if in.Instrument == wire.UnknownInstrument {
			continue // unknown senders are in the ledger
		}
		coverage, expected := "-", "-"
		if in.Coverage != nil {
			coverage, expected = fmt.Sprintf("%.2f %%", 100**in.Coverage), fmt.Sprint(in.Expected)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", in.Instrument, expected, in.received(), humanize.IBytes(in.Bytes),
			in.Late, in.Repeated, in.Retracted, in.Purged, in.Expired, in.Damaged, coverage, in.gaps(), in.mirrored(r.Partners))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := r.printUnconfirmed(w); err != nil {
		return err
	}
	if err := r.printDownloads(w); err != nil {
		return err
	}
	return r.printVerdict(w)
}

func (i *InstrumentReport) received() string {
	switch {
	case i.Datagrams == 0:
		return fmt.Sprint(i.Objects)
	case i.Objects == 0:
		return fmt.Sprintf("%d datagrams", i.Datagrams)
	default:
		return fmt.Sprintf("%d, %d datagrams", i.Objects, i.Datagrams)
	}
}

// gaps prints times as Link=1h2m0s,Lost=3s, or a dash.
func (i *InstrumentReport) gaps() string {
	var parts []string
	for _, cause := range wire.GapCauses() {
		if sum, some := i.Gaps[cause]; some {
			parts = append(parts, fmt.Sprintf("%s=%s", cause, time.Duration(sum.Seconds*float64(time.Second)).Round(time.Second)))
		}
	}
	return orDash(strings.Join(parts, ","))
}

func (r *Report) printDownloads(w io.Writer) error {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DOWNLOADS OF\tREADER\tCLASS\tREQUESTS\tNOT MODIFIED\tREFUSED\tBYTES")
	some := false
	row := func(of string, counts []wire.DownloadCount) {
		for _, c := range counts {
			some = true
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", of, orDash(c.Reader), c.Class, c.Requests, c.NotModified, c.Refused, humanize.IBytes(c.Bytes))
		}
	}
	for i := range r.Instruments {
		row(r.Instruments[i].Instrument, r.Instruments[i].Downloads)
	}
	row("-", r.Other)
	if !some {
		_, err := fmt.Fprintln(w, "Nothing was downloaded.")
		return err
	}
	return t.Flush()
}

// printVerdict says whether the totals are those of the ledger.
func (r *Report) printVerdict(w io.Writer) error {
	objects, datagrams, repeats := uint64(0), uint64(0), uint64(0)
	for i := range r.Instruments {
		objects += r.Instruments[i].Objects
		datagrams += r.Instruments[i].Datagrams
		repeats += r.Instruments[i].Repeated
	}
	if r.Agree {
		_, err := fmt.Fprintf(w, "\nThe totals are those of the ledger: %d objects, %d repeats, %d datagrams.\n", objects, repeats, datagrams)
		return err
	}
	var out strings.Builder
	out.WriteString("\nThe totals differ from the ledger's:\n")
	for i := range r.Instruments {
		for _, d := range r.Instruments[i].Differences {
			fmt.Fprintf(&out, "  %s %s\n", r.Instruments[i].Instrument, d)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}
