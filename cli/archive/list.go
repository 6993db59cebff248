// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

func listCommand(o *backend.Options) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the objects in the archive",
		Long: `Lists the objects that the archive's manifests hold, each once, by instrument and
day of receipt. A new object appears once the part that lists it is closed,
within about a minute.

-o json prints one notice per line: everything that is known of the object.

--legacy lists the legacy tree instead: for each sender's address, port of the
gateways and day one path, under which substorm archive cat writes all that came.`,
		Example: `  substorm archive ls --day today
  substorm archive ls --instrument mag-1 --from 2026-11-01 --to 2026-11-30 -o wide
  substorm archive ls --state Retracted,Purged
  substorm archive ls --legacy --day yesterday
  substorm archive ls -o json | jq -r 'select(.size > 1e6) | .key'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := l.days(); err != nil {
				return err
			}
			format, err := rowFormat(l.output)
			if err != nil {
				return err
			}
			if l.legacy && (l.repeats || l.output != "" || len(l.states) > 0) {
				return usage.Errorf("--legacy lists paths, not objects: leave -o, --state and --repeats out")
			}
			if err := l.checkStates(); err != nil {
				return err
			}
			return backend.WithStore(cmd.Context(), *o, func(b *backend.Backend, store objectstore.Store) error {
				if l.legacy {
					return l.printLegacy(cmd.Context(), store, b.Code, cmd.OutOrStdout(), cmd.ErrOrStderr())
				}
				return l.print(cmd.Context(), store, b.Code, format, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	l.addFlags(cmd.Flags())
	cmd.Flags().StringVarP(&l.output, "output", "o", "", "wide or json (one object per line)")
	cmd.Flags().BoolVar(&l.legacy, "legacy", false, "list the legacy tree: address, port and day")
	cmd.Flags().StringSliceVar(&l.states, "state", nil, "only objects in these states: "+stateNames+" (default: all but Withdrawn)")
	cmd.Flags().BoolVar(&l.repeats, "repeats", false, "also list duplicates of other objects (state Withdrawn)")
	return cmd
}

// listing is what `archive ls` prints.
type listing struct {
	selection
	output  string
	states  []string
	repeats bool
	legacy  bool
}

// stateNames are all states that an object may be listed in.
const stateNames = "Current, Superseded, Retracted, Purged, Withdrawn"

func (l *listing) checkStates() error {
	for _, name := range l.states {
		if !slices.Contains(strings.Split(stateNames, ", "), name) {
			return usage.Errorf("--state %s: there are %s", name, stateNames)
		}
	}
	return nil
}

// shows says whether records in a state are listed.
func (l *listing) shows(state wire.State) bool {
	if len(l.states) > 0 {
		return slices.Contains(l.states, string(state))
	}
	return state != wire.StateWithdrawn || l.repeats
}

// print lists as it reads: a large archive needs no more memory than a day of it.
func (l *listing) print(ctx context.Context, store objectstore.Store, site string, format rows, out, notes io.Writer) error {
	buffered := bufio.NewWriter(out)
	objects, bytes, err := l.each(ctx, store, site, func(n wire.Notice) error { return format.row(buffered, n) }, func() error {
		return format.header(buffered)
	})
	if err := errors.Join(err, buffered.Flush()); err != nil {
		return fmt.Errorf("the list is not complete: %w", err)
	}
	if objects == 0 {
		err = nothing(ctx, store, site, notes)
	} else if l.output != "json" {
		_, err = fmt.Fprintf(notes, "%d objects, %s\n", objects, humanize.IBytes(bytes))
	}
	return err
}

// nothing says that nothing was found, and what there is.
func nothing(ctx context.Context, store objectstore.Store, site string, notes io.Writer) error {
	var names []string
	for name, err := range manifest.Instruments(ctx, store, site) {
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		_, err := fmt.Fprintf(notes, "the archive of site %s lists nothing yet; what is received is listed within about a minute\n", site)
		return err
	}
	_, err := fmt.Fprintf(notes, "the archive of site %s lists nothing here; it has the instruments %s\n", site, strings.Join(names, ", "))
	return err
}

func (l *listing) each(ctx context.Context, store objectstore.Store, site string, row func(wire.Notice) error, first func() error) (objects int, bytes uint64, err error) {
	for n, err := range l.records(ctx, store, site) {
		if err != nil {
			return objects, bytes, err
		}
		if !l.shows(n.State) {
			continue
		}
		if objects == 0 {
			if err := first(); err != nil {
				return objects, bytes, err
			}
		}
		objects++
		bytes += uint64(n.Size)
		if err := row(n); err != nil {
			return objects, bytes, err
		}
	}
	return objects, bytes, nil
}

// rows is a way to print a list.
type rows struct {
	header func(io.Writer) error
	row    func(io.Writer, wire.Notice) error
}

func rowFormat(output string) (rows, error) {
	switch output {
	case "":
		return table(narrow), nil
	case "wide":
		return table(wide), nil
	case "json":
		return rows{header: func(io.Writer) error { return nil }, row: jsonRow}, nil
	default:
		return rows{}, usage.Errorf("-o %s: there are wide and json", output)
	}
}

func jsonRow(w io.Writer, n wire.Notice) error {
	line, err := wire.Encode(n)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// column is one column of the table: columns of a listing that is printed as it
// is read have fixed widths; the last one is as long as it must be.
type column struct {
	title string
	width int
	value func(wire.Notice) string
}

var (
	receivedColumn = column{"RECEIVED", 20, func(n wire.Notice) string { return n.ReceivedAt.UTC().Format("2006-01-02 15:04:05Z") }}
	sizeColumn     = column{"SIZE", 10, func(n wire.Notice) string { return humanize.IBytes(uint64(n.Size)) }}
	keyColumn      = column{"KEY", 0, key}
	stateColumn    = column{"STATE", 10, func(n wire.Notice) string { return string(n.State) }}
	narrow         = []column{receivedColumn, sizeColumn, stateColumn,
		{"SHA-256", 12, func(n wire.Notice) string { return n.Digest.String()[:12] }}, keyColumn}
	wide = []column{
		{"RECEIVED", 30, func(n wire.Notice) string { return n.ReceivedAt.UTC().Format("2006-01-02T15:04:05.000000000Z") }},
		{"BYTES", 12, func(n wire.Notice) string { return fmt.Sprint(n.Size) }},
		{"DATAGRAMS", 9, func(n wire.Notice) string {
			if n.Segment == nil {
				return "-"
			}
			return fmt.Sprint(n.Segment.Datagrams)
		}},
		{"SHA-256", 64, func(n wire.Notice) string { return n.Digest.String() }},
		stateColumn,
		{"BACKFILL", 8, func(n wire.Notice) string {
			if n.Backfill {
				return "yes"
			}
			return "-"
		}},
		{"MEDIA TYPE", 30, func(n wire.Notice) string { return orDash(n.MediaType) }},
		{"SOURCE", 24, func(n wire.Notice) string { return orDash(n.Source) }},
		{"GATEWAY", 16, func(n wire.Notice) string { return orDash(n.Gateway) }},
		{"PATH", 40, func(n wire.Notice) string { return orDash(n.Path) }},
		keyColumn,
	}
)

// key is the object's key, or for a member of a pack its id.
func key(n wire.Notice) string {
	if n.Length > 0 {
		return n.ID
	}
	return n.Key
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func table(columns []column) rows {
	line := func(w io.Writer, cell func(column) string) error {
		for _, c := range columns[:len(columns)-1] {
			if _, err := fmt.Fprintf(w, "%-*s  ", c.width, cell(c)); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintln(w, cell(columns[len(columns)-1]))
		return err
	}
	return rows{
		header: func(w io.Writer) error { return line(w, func(c column) string { return c.title }) },
		row:    func(w io.Writer, n wire.Notice) error { return line(w, func(c column) string { return c.value(n) }) },
	}
}
