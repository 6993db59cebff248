// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/wire"
)

func ledgerCommand(o *backend.Options) *cobra.Command {
	var s selection
	var format output.Format
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "Show what was received, stored and announced, and whether it agrees",
		Long: `Shows for each instrument and day how many objects and datagrams passed each step,
what was unfinished or dropped and why, and whether the columns agree. What is on
its way makes them differ for a moment.

received      the sender may have a receipt for it (a datagram: JetStream has it)
acknowledged  the receipt could be written to the sender
stored        it is in the object store (a datagram: in an announced segment). Objects
              are not counted there: what is announced was stored
announced     the manifests list it (a datagram: its message is in the stream, so it is
              what was received)
duplicates    it was there already
damaged       it is stored, and not what was received any more, as the scrub found
unfinished    objects that began and did not get into the archive, by cause; Corrupt and
              SpoolAbandoned: they had a receipt, and are lost; Duplicates: equal ones are there
dropped       datagrams, by cause; Undecodable, MessageDeleted and StreamGone:
              announced, and in no segment
unknown       datagrams that were on their way to the stream when a gateway was killed

A gateway counts what it received; the archivist counts the rest from manifests and
streams. What is announced and was not counted, since its gateway was killed in between,
counts as received, and no longer as unfinished (Killed) or unknown.

-o json and yaml have the columns of each gateway, too. What is known of damage, and when
the archive was last read, goes to standard error.`,
		Example: `  substorm archive ledger --day today
  substorm archive ledger --instrument allsky-1 -o json | jq .agree`,
		Args: noNames,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return backend.WithJetStream(cmd.Context(), *o, func(b *backend.Backend, js jetstream.JetStream) error {
				ledgers, err := ReadLedger(cmd.Context(), js, b.Code, &s, time.Now())
				if err != nil {
					return err
				}
				err = output.Each(cmd.OutOrStdout(), format, ledgers, func(w io.Writer) { printLedgers(w, b.Code, ledgers) })
				if err != nil {
					return err
				}
				known, err := readDamage(cmd.Context(), js, b.Code, &s)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.ErrOrStderr(), known)
				return nil
			})
		},
	}
	s.addFlags(cmd)
	format.Add(cmd, "one instrument's day per line")
	return cmd
}

func printLedgers(w io.Writer, site string, ledgers []Ledger) {
	if len(ledgers) == 0 {
		fmt.Fprintf(w, "the ledger of site %s has nothing here\n", site)
		return
	}
	t := output.Columns(w, "INSTRUMENT\tDAY\tOF\tRECEIVED\tACKNOWLEDGED\tSTORED\tANNOUNCED\tDUPLICATES\tBYTES\tUNFINISHED\tDROPPED\tUNKNOWN")
	for _, l := range ledgers {
		if l.hasObjects() || !l.hasDatagrams() {
			fmt.Fprintf(t, "%s\t%s\tobjects\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t-\t-\n", l.Instrument, l.Day, l.Received.Objects, l.Received.Acknowledged,
				l.Stored.Objects, l.Announced.Objects, l.Duplicates.Objects, humanize.IBytes(l.Received.ObjectBytes), byCause(l.Received.Unfinished))
		}
		if l.hasDatagrams() {
			fmt.Fprintf(t, "%s\t%s\tdatagrams\t%d\t-\t%d\t%d\t-\t%s\t-\t%s\t%d\n", l.Instrument, l.Day, l.Received.Datagrams, l.Stored.Datagrams,
				l.Announced.Datagrams, humanize.IBytes(l.Received.DatagramBytes), byCause(l.Received.Plus(l.Stored).Dropped), l.Received.Unknown)
		}
	}
	_ = t.Flush()
	printAgreement(w, ledgers)
}

func (l *Ledger) hasObjects() bool {
	return l.Received.Objects+l.Announced.Objects+l.Duplicates.Objects > 0 || len(l.Received.Unfinished) > 0
}

func (l *Ledger) hasDatagrams() bool {
	return l.Received.Datagrams+l.Stored.Datagrams+l.Received.Unknown > 0 ||
		len(l.Received.Dropped)+len(l.Stored.Dropped) > 0
}

func printAgreement(w io.Writer, ledgers []Ledger) {
	disagree, lost := 0, uint64(0)
	for _, l := range ledgers {
		lost += sumOf(l.Stored.Dropped)
		if !l.Agree {
			disagree++
		}
	}
	switch {
	case disagree > 0:
		fmt.Fprintf(w, "\nThe columns of %d of %d lines differ:\n", disagree, len(ledgers))
	case lost > 0:
		fmt.Fprintln(w, "\nThe columns agree: what was received is announced, and stored but for what is in no segment.")
	default:
		fmt.Fprintln(w, "\nThe columns agree: what was received is stored and announced.")
	}
	for _, l := range ledgers {
		for _, d := range l.Differences {
			fmt.Fprintf(w, "  %s %s: %s\n", l.Instrument, l.Day, d)
		}
	}
	printLost(w, ledgers)
	printDamaged(w, ledgers)
}

// printLost names the datagrams that had come to the stream and are in no
// segment: the columns add up with them, and yet they are lost.
func printLost(out io.Writer, ledgers []Ledger) {
	title := "\nIn the stream, and in no segment:\n"
	for _, l := range ledgers {
		if n := sumOf(l.Stored.Dropped); n > 0 {
			fmt.Fprintf(out, "%s  %s %s: %d datagrams (%s)\n", title, l.Instrument, l.Day, n, byCause(l.Stored.Dropped))
			title = ""
		}
	}
}

// printDamaged names the days with objects whose bytes in the store are not those that were received.
func printDamaged(out io.Writer, ledgers []Ledger) {
	title := "\nIn the store, and damaged or missing (substorm archive verify names them):\n"
	for _, l := range ledgers {
		if n := l.Damaged.Objects; n > 0 {
			fmt.Fprintf(out, "%s  %s %s: %d objects, %s\n", title, l.Instrument, l.Day, n, humanize.IBytes(l.Damaged.ObjectBytes))
			title = ""
		}
	}
}

// byCause prints counts as Reset=1,Stalled=2, or a dash.
func byCause(counts map[wire.Cause]uint64) string {
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(counts)) {
		if counts[cause] > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", cause, counts[cause]))
		}
	}
	return cmp.Or(strings.Join(parts, ","), "-")
}
