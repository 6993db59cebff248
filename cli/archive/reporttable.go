// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/wire"
)

var errReportDiffers = errors.New("the totals differ from the ledger's")

func reportCommand(o *backend.Options) *cobra.Command {
	var s selection
	var format output.Format
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Report what a time brought: expected, received, late, missing, downloaded",
		Long: `Reports, for each instrument, what the archive lists of the days of receipt from --since
to --until, what was expected of these days of observation and is missing, and what
was downloaded. It ends by saying whether its totals are those of the ledger, and
exits with 1 where they are not: it counts what the manifests list, the ledger what
gateways received.

EXPECTED   observations that were due, by cadence and what the instrument observes
RECEIVED   objects and datagrams that are listed, without duplicates
LATE       of these, what is backfill: it came later than cadence.lateAfter was then
DUPLICATES   what was there already: a duplicate
EXPIRED    what spec.archive.expiry does not keep any longer
DAMAGED    objects that are not what was received any more: substorm archive verify
COVERAGE   the part of the time in which something was due that has no gap
GAPS       how long something is missing, by cause: substorm archive gaps shows each
MIRRORED   what each partner confirmed that it has; - where there is none`,
		Example: `  substorm archive report --since 2026-11-01 --until 2026-11-30
  substorm archive report --day yesterday --instrument allsky-1
  substorm archive report --day yesterday -o json | jq .agree`,
		Args: noNames,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.day == "" && s.since == "" && s.until == "" {
				s.day = "yesterday"
			}
			return backend.With(cmd.Context(), *o, func(b *backend.Backend, store objectstore.Store, js jetstream.JetStream) error {
				s.shown = progress.Start(cmd.ErrOrStderr(), false, nil)
				r, err := ReadReport(cmd.Context(), store, js, b.Code, &s, time.Now())
				s.shown.Stop()
				if err != nil {
					return err
				}
				if !format.IsData() {
					defer fmt.Fprintln(cmd.ErrOrStderr(), r.Damage)
				}
				return r.tell(cmd.OutOrStdout(), format)
			})
		},
	}
	s.addFlags(cmd)
	format.Add(cmd, "one document")
	return cmd
}

// tell prints a report. It is an error where its totals are not those of the ledger.
func (r *Report) tell(w io.Writer, format output.Format) error {
	err := output.One(w, format, r, r.print)
	if err == nil && !r.Agree {
		err = errReportDiffers
	}
	return err
}

func (r *Report) print(w io.Writer) {
	fmt.Fprintf(w, "Site %s, %s to %s; the ledger is closed to %s\n\n", r.Site, cmp.Or(string(r.From), "-"), cmp.Or(string(r.To), "-"), cmp.Or(string(r.ClosedTo), "-"))
	t := output.Columns(w, "INSTRUMENT\tEXPECTED\tRECEIVED\tBYTES\tLATE\tDUPLICATES\tRETRACTED\tPURGED\tEXPIRED\tDAMAGED\tCOVERAGE\tGAPS\t"+r.mirrorTitles())
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
			in.Late, in.Duplicates, in.Retracted, in.Purged, in.Expired, in.Damaged, coverage, in.gaps(), in.mirrored(r.Partners))
	}
	_ = t.Flush()
	r.printUnconfirmed(w)
	r.printDownloads(w)
	r.printVerdict(w)
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
	return cmp.Or(strings.Join(parts, ","), "-")
}

func (r *Report) printDownloads(w io.Writer) {
	fmt.Fprintln(w)
	var text strings.Builder
	t := output.Columns(&text, "DOWNLOADS OF\tREADER\tCLASS\tREQUESTS\tNOT MODIFIED\tREFUSED\tBYTES")
	some := false
	row := func(of string, counts []wire.DownloadCount) {
		for _, c := range counts {
			some = true
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", of, cmp.Or(c.Reader, "-"), c.Class, c.Requests, c.NotModified, c.Refused, humanize.IBytes(c.Bytes))
		}
	}
	for i := range r.Instruments {
		row(r.Instruments[i].Instrument, r.Instruments[i].Downloads)
	}
	row("-", r.Other)
	if !some {
		fmt.Fprintln(w, "Nothing was downloaded.")
		return
	}
	_ = t.Flush()
	fmt.Fprint(w, text.String())
}

// printVerdict says whether the totals are those of the ledger.
func (r *Report) printVerdict(w io.Writer) {
	objects, datagrams, duplicates := uint64(0), uint64(0), uint64(0)
	for i := range r.Instruments {
		objects += r.Instruments[i].Objects
		datagrams += r.Instruments[i].Datagrams
		duplicates += r.Instruments[i].Duplicates
	}
	if r.Agree {
		fmt.Fprintf(w, "\nThe totals are those of the ledger: %d objects, %d duplicates, %d datagrams.\n", objects, duplicates, datagrams)
		return
	}
	fmt.Fprintln(w, "\nThe totals differ from the ledger's:")
	for i := range r.Instruments {
		for _, d := range r.Instruments[i].Differences {
			fmt.Fprintf(w, "  %s %s\n", r.Instruments[i].Instrument, d)
		}
	}
}
