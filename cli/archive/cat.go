// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

func catCommand(o *backend.Options) *cobra.Command {
	var s selection
	var retracted bool
	cmd := &cobra.Command{
		Use:   "cat KEY | DIGEST | PATH | ALIAS | legacy/ADDRESS/PORT/YYYY/MM/DD",
		Short: "Write an object, or a day of the legacy tree, to standard output",
		Long: `Writes the bytes of an object: of a key or a digest, or that is published under a
path or has it as an alias. A path of the legacy tree stands for all objects that
came from one address to one port of the gateways in one UTC day, in the order in
which they were received, byte for byte as they came: an old server that appends
what it gets would hold the same. Duplicates of other objects are left out, and
what was retracted unless --retracted is given.

Digests are checked as bytes pass; where one differs, what was written is followed
by an error.`,
		Example: `  substorm archive cat 2026/11/21/rank_120000-9dff50df.jpg | file -
  substorm archive cat legacy/192.0.2.7/30100/2026/11/21 > today.dat
  substorm archive ls --legacy --day today`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usage.Errorf("name an object: substorm archive ls shows what there is")
			}
			return backend.WithStore(cmd.Context(), *o, func(b *backend.Backend, store objectstore.Store) error {
				s.shown = progress.Start(cmd.ErrOrStderr(), progress.IsTerminal(cmd.OutOrStdout()), nil)
				defer s.shown.Stop()
				if wire.IsLegacyPath(args[0]) {
					return s.catLegacy(cmd.Context(), store, b.Code, args[0], retracted, cmd.OutOrStdout(), s.shown.Above(cmd.ErrOrStderr()))
				}
				n, err := resolveReadable(cmd.Context(), b, store, args[0], &s, retracted)
				if err != nil {
					return err
				}
				return s.fetch(cmd.Context(), store, n, cmd.OutOrStdout())
			})
		},
	}
	s.addFlags(cmd)
	addRetracted(cmd.Flags(), &retracted)
	return cmd
}

// catLegacy writes what came from one address to one port in one day.
func (s *selection) catLegacy(ctx context.Context, store objectstore.Store, site, path string, retracted bool, out, notes io.Writer) error {
	l, err := wire.ParseLegacyPath(path)
	if err != nil {
		return usage.Errorf("%v: substorm archive ls --legacy shows those that there are", err)
	}
	instruments, err := s.archived(ctx, store, site)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(out)
	objects, left := 0, 0
	for n, err := range objectpath.Legacy(ctx, store, site, l, instruments) {
		if err != nil {
			return err
		}
		objects++
		s.shown.Set(0, 0, "%d objects, received up to %s", objects, clock(n.ReceivedAt))
		if n.State == wire.StateRetracted && !retracted {
			left++
			continue
		}
		if err := objectpath.Append(ctx, store, n.Record, buffered); err != nil {
			return err
		}
	}
	if objects == 0 {
		return fmt.Errorf("the archive of site %s lists nothing that came from %s to port %d on %s: substorm archive ls --legacy shows what there is; what is received is listed within about a minute",
			site, l.Address, l.Port, l.Day)
	}
	if err := buffered.Flush(); err != nil || left == 0 {
		return err
	}
	fmt.Fprintf(notes, "%d objects were retracted and are left out: --retracted gives them too\n", left)
	return nil
}

// archived are the instruments within the selection for which the archive lists anything.
func (s *selection) archived(ctx context.Context, store objectstore.Store, site string) ([]string, error) {
	var names []string
	for name, err := range manifest.Instruments(ctx, store, site) {
		if err != nil {
			return nil, err
		}
		if s.holdsInstrument(name) {
			names = append(names, name)
		}
	}
	return names, nil
}
