// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"cmp"
	"context"
	"fmt"
	"io"
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

// silentAfter is when a pod counts as one that no longer reports: three missed
// reports and a grace period.
const silentAfter = 3*wire.GatewayReportInterval + 15*time.Second

// Spool is one pod's.
type Spool struct {
	Pod  string `json:"pod"`
	Pool string `json:"pool"`
	Node string `json:"node,omitempty"`
	// ReportedAt is when the pod last reported, by the server's clock. Silent: it
	// has ceased to, and what it received since is not in the figures.
	ReportedAt time.Time `json:"reportedAt"`
	Silent     bool      `json:"silent"`
	// Stopped: it said that this is its final report.
	Stopped bool `json:"stopped,omitempty"`

	Objects     int64      `json:"objects"`
	Bytes       int64      `json:"bytes"`
	Oldest      *time.Time `json:"oldest,omitempty"`
	Quarantined int64      `json:"quarantined,omitempty"`
	// Copies are what it keeps for other pods.
	Copies []wire.CopiesStatus `json:"copies,omitempty"`

	incarnation string
	revision    uint64 // of the report
}

func listCommand(o *backend.Options) *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the pods' spools",
		Long: `Lists what each gateway pod last said of its spool. A pod that is silent is named
so: what it received after its last report is not in the figures.`,
		Example: `  substorm spool ls
  kubectl substorm spool ls -n substorm -o json | jq 'select(.silent)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return backend.WithJetStream(cmd.Context(), *o, func(b *backend.Backend, js jetstream.JetStream) error {
				spools, err := Read(cmd.Context(), js, b.Code, time.Now())
				if err != nil {
					return err
				}
				return output.Each(cmd.OutOrStdout(), format, spools, func(w io.Writer) { printTable(w, spools, time.Now()) })
			})
		},
	}
	format.Add(cmd, "one spool per line")
	return cmd
}

// Read returns what each pod of a Site last reported of its spool, by pod.
func Read(ctx context.Context, js jetstream.JetStream, site string, now time.Time) ([]Spool, error) {
	var spools []Spool
	err := backend.Entries(ctx, js, wire.StatusBucket(site), wire.GatewayStatusKey("*"), func(e backend.Entry) error {
		s, err := wire.Decode[wire.GatewayStatus](e.Data)
		if err != nil {
			return fmt.Errorf("report %s: %w", e.Key, err)
		}
		spools = append(spools, spoolOf(s, e, now))
		return nil
	})
	slices.SortFunc(spools, func(a, b Spool) int { return cmp.Compare(a.Pod, b.Pod) })
	return spools, err
}

func spoolOf(s wire.GatewayStatus, e backend.Entry, now time.Time) Spool {
	out := Spool{
		Pod: s.Gateway, Pool: s.Pool, Node: s.Node, ReportedAt: e.Time, Stopped: s.Stopped, Copies: s.Copies,
		Silent: now.Sub(e.Time) > silentAfter, incarnation: s.Incarnation, revision: e.Sequence,
	}
	if s.Spool != nil {
		out.Objects, out.Bytes, out.Oldest, out.Quarantined = s.Spool.Objects, s.Spool.Bytes, s.Spool.Oldest, s.Spool.Quarantined
	}
	return out
}

func printTable(w io.Writer, spools []Spool, now time.Time) {
	if len(spools) == 0 {
		fmt.Fprintln(w, "No gateway has reported yet.")
		return
	}
	t := output.Columns(w, "POD\tNODE\tREPORTING\tLAST REPORT\tOBJECTS\tBYTES\tOLDEST\tCORRUPT\tKEEPS COPIES OF")
	for _, s := range spools {
		oldest := "-"
		if s.Oldest != nil {
			oldest = age(now.Sub(*s.Oldest))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%d\t%s\n", s.Pod, cmp.Or(s.Node, "-"), output.Bool(!s.Silent), s.lastReport(now), s.Objects,
			humanize.IBytes(uint64(s.Bytes)), oldest, s.Quarantined, cmp.Or(s.copies(), "-"))
	}
	_ = t.Flush()
}

func (s *Spool) lastReport(now time.Time) string {
	text := age(now.Sub(s.ReportedAt)) + " ago"
	if s.Stopped {
		text += " (stopped)"
	}
	return text
}

func (s *Spool) copies() string {
	var all []string
	for _, c := range s.Copies {
		all = append(all, fmt.Sprintf("%s (%d)", c.Owner, c.Objects))
	}
	return strings.Join(all, ", ")
}

// age is a duration in its largest unit, and the next one.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}
