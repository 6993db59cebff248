// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectpath"
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

-o json and yaml print everything that is known of an object, as notices do.

--legacy lists the legacy tree instead: for each sender's address, port of the
gateways and day one path, under which substorm archive cat writes all that came.`,
		Example: `  substorm archive ls --day today
  substorm archive ls --instrument mag-1 --since 2026-11-01 --until 2026-11-30 -o wide
  substorm archive ls --state Retracted,Purged
  substorm archive ls --legacy --day yesterday
  substorm archive ls -o json | jq -r 'select(.size > 1e6) | .key'`,
		Args: noNames,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if l.legacy && (l.duplicates || len(l.states) > 0) {
				return usage.Errorf("--legacy lists paths, not objects: leave --state and --duplicates out")
			}
			if err := l.checkStates(); err != nil {
				return err
			}
			return backend.WithStore(cmd.Context(), *o, func(b *backend.Backend, store objectstore.Store) error {
				if l.legacy {
					return l.printLegacy(cmd.Context(), store, b.Code, cmd.OutOrStdout(), cmd.ErrOrStderr())
				}
				return l.print(cmd.Context(), store, b.Code, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	l.addFlags(cmd)
	l.format.Add(cmd, "one object per line")
	cmd.Flags().BoolVar(&l.legacy, "legacy", false, "list the legacy tree: address, port and day")
	cmd.Flags().StringSliceVar(&l.states, "state", nil, "only objects in these states: "+stateNames+" (default: all but Duplicate)")
	usage.OneOf(cmd, "state", strings.Split(stateNames, ", ")...)
	cmd.Flags().BoolVar(&l.duplicates, "duplicates", false, "also list duplicates of other objects (state Duplicate)")
	return cmd
}

// listing is what `archive ls` prints.
type listing struct {
	selection
	format     output.Format
	states     []string
	duplicates bool
	legacy     bool
}

// stateNames are all states that an object may be listed in, as wire.Record.Outcome has them.
const stateNames = "Current, Superseded, Retracted, Expired, Purged, Duplicate"

func (l *listing) checkStates() error {
	for _, name := range l.states {
		if !slices.Contains(strings.Split(stateNames, ", "), name) {
			return usage.Errorf("--state %s is unknown: choose one of %s", name, stateNames)
		}
	}
	return nil
}

// shows says whether records in a state are listed.
func (l *listing) shows(state wire.State) bool {
	if len(l.states) > 0 {
		return slices.Contains(l.states, string(state))
	}
	return state != wire.StateDuplicate || l.duplicates
}

// print lists as it reads: a large archive needs no more memory than a day of it.
func (l *listing) print(ctx context.Context, store objectstore.Store, site string, out, notes io.Writer) error {
	buffered := bufio.NewWriter(out)
	data, columns := l.format.Encoder(buffered), narrow
	if l.format == output.Wide {
		columns = wide
	}
	objects, bytes := 0, uint64(0)
	for n, err := range l.records(ctx, store, site) {
		if err != nil {
			return errors.Join(fmt.Errorf("the list is not complete: %w", err), buffered.Flush())
		}
		if !l.shows(n.Outcome()) {
			continue
		}
		if l.format.IsData() {
			var text []byte
			if text, err = wire.Encode(n); err == nil {
				err = data.Encode(json.RawMessage(text))
			}
		} else {
			if objects == 0 {
				_ = row(buffered, columns, func(c column) string { return c.title }) // the next says the same
			}
			err = row(buffered, columns, func(c column) string { return c.value(n) })
		}
		if err != nil {
			return errors.Join(fmt.Errorf("the list is not complete: %w", err), buffered.Flush())
		}
		objects, bytes = objects+1, bytes+uint64(n.Size)
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("the list is not complete: %w", err)
	}
	if objects == 0 {
		return sayNothingFound(ctx, store, site, notes)
	}
	if !l.format.IsData() {
		fmt.Fprintf(notes, "%d objects, %s\n", objects, humanize.IBytes(bytes))
	}
	return nil
}

// sayNothingFound says that nothing was found, and what there is.
func sayNothingFound(ctx context.Context, store objectstore.Store, site string, notes io.Writer) error {
	var names []string
	for name, err := range manifest.Instruments(ctx, store, site) {
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		fmt.Fprintf(notes, "the archive of site %s lists nothing yet; what is received is listed within about a minute\n", site)
		return nil
	}
	fmt.Fprintf(notes, "the archive of site %s lists nothing here; it has the instruments %s\n", site, strings.Join(names, ", "))
	return nil
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
	stateColumn    = column{"STATE", 10, func(n wire.Notice) string { return string(n.Outcome()) }}
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
		{"BACKFILL", 8, func(n wire.Notice) string { return output.Bool(n.Backfill) }},
		{"MEDIA TYPE", 30, func(n wire.Notice) string { return cmp.Or(n.MediaType, "-") }},
		{"SOURCE", 24, func(n wire.Notice) string { return cmp.Or(n.Source, "-") }},
		{"GATEWAY", 16, func(n wire.Notice) string { return cmp.Or(n.Gateway, "-") }},
		{"PATH", 40, func(n wire.Notice) string { return cmp.Or(n.Path, "-") }},
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

// row writes a line.
func row(out *bufio.Writer, columns []column, cell func(column) string) error {
	for _, c := range columns[:len(columns)-1] {
		fmt.Fprintf(out, "%-*s  ", c.width, cell(c))
	}
	_, err := fmt.Fprintln(out, cell(columns[len(columns)-1]))
	return err
}

// printLegacy lists the legacy tree within the selection, day by day.
func (l *listing) printLegacy(ctx context.Context, store objectstore.Store, site string, out, notes io.Writer) error {
	days := map[wire.Day][]string{}
	for list, err := range l.lists(ctx, store, site) {
		if err != nil {
			return err
		}
		days[list.day] = append(days[list.day], list.instrument)
	}
	buffered := bufio.NewWriter(out)
	data := l.format.Encoder(buffered)
	folders := 0
	for _, day := range slices.Sorted(maps.Keys(days)) {
		found, err := objectpath.Folders(ctx, store, site, day, days[day])
		if err != nil {
			return errors.Join(fmt.Errorf("the list is not complete: %w", err), buffered.Flush())
		}
		for _, f := range found {
			if folders++; l.format.IsData() {
				if err := data.Encode(map[string]any{"path": f.Path(), "first": f.First, "last": f.Last, "objects": f.Objects, "bytes": f.Bytes, "instruments": f.Instruments}); err != nil {
					return errors.Join(fmt.Errorf("the list is not complete: %w", err), buffered.Flush())
				}
				continue
			}
			if folders == 1 {
				fmt.Fprintf(buffered, "%-8s  %-8s  %7s  %12s  %-20s  %s\n", "FIRST", "LAST", "OBJECTS", "BYTES", "INSTRUMENTS", "PATH")
			}
			fmt.Fprintf(buffered, "%-8s  %-8s  %7d  %12d  %-20s  %s\n", f.First.UTC().Format("15:04:05"), f.Last.UTC().Format("15:04:05"),
				f.Objects, f.Bytes, strings.Join(f.Instruments, ","), f.Path())
		}
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	if folders == 0 {
		return sayNothingFound(ctx, store, site, notes)
	}
	return nil
}
