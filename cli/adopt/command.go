// SPDX-License-Identifier: Apache-2.0

// Package adopt looks at what unknown senders sent, and gives it to an instrument.
package adopt

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/usage"
)

const long = `Shows what unknown senders sent to pools with unknownSenders: Quarantine: from which
address to which port, how much, since when, and what it looks like. With -o yaml and
json it prints an Instrument for each, to be completed and applied.

With --source, --port and --instrument it gives what came from that address to that
port to the Instrument: it is copied into the archive with the time at which it was
received, announced and counted, and then removed from the quarantine. An adoption
that was cut short is finished by the same command; nothing is counted twice.

Datagrams are adopted as the segments they were kept in: one object for each.`

const example = `  substorm adopt
  substorm adopt -o yaml > unknown-senders.yaml
  substorm adopt --source 192.0.2.7 --port 30101 --instrument allsky-1`

// adoption is one run of the command.
type adoption struct {
	source     netip.Addr
	port       uint16
	instrument string

	out   io.Writer
	shown *progress.Progress
	site  string
	store objectstore.Store
	js    jetstream.JetStream
	now   func() time.Time
}

// Command returns `substorm adopt`.
func Command() *cobra.Command {
	var o backend.Options
	var source string
	var format output.Format
	a := &adoption{now: time.Now}
	cmd := &cobra.Command{
		Use:     "adopt [--source ADDRESS --port PORT --instrument INSTRUMENT]",
		Short:   "Look at what unknown senders sent, and give it to an instrument",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if source != "" {
				if a.source, err = netip.ParseAddr(source); err != nil {
					return usage.Errorf("--source %q is not an IP address", source)
				}
				a.source = a.source.Unmap()
			}
			if a.instrument != "" && (source == "" || a.port == 0) {
				return usage.Errorf("--instrument goes with --source and --port: name the sender whose data is the instrument's")
			}
			o.ImportFor = a.instrument
			a.shown = progress.Start(cmd.ErrOrStderr(), false, nil)
			defer a.shown.Stop()
			a.out = a.shown.Above(cmd.OutOrStdout())
			return a.run(cmd.Context(), o, format)
		},
	}
	f := cmd.Flags()
	f.StringVar(&source, "source", "", "address of the sender")
	f.Uint16Var(&a.port, "port", 0, "port of the gateway that it sent to")
	f.StringVarP(&a.instrument, "instrument", "i", "", "Instrument that it is of; it must be declared")
	format.Add(cmd, "one Instrument per line")
	o.AddFlags(f)
	return cmd
}

func (a *adoption) run(ctx context.Context, o backend.Options, format output.Format) error {
	b, err := backend.Open(ctx, o)
	if err != nil {
		return err
	}
	defer b.Close()
	a.site = b.Code
	if a.store, err = b.Store(ctx); err != nil {
		return err
	}
	if a.instrument != "" {
		if a.js, err = b.JetStream(ctx); err != nil {
			return err
		}
		return a.adopt(ctx)
	}
	found, err := a.find(ctx)
	if err != nil {
		return err
	}
	if format.IsData() {
		return manifests(format.Encoder(a.out), found)
	}
	return output.Each(a.out, format, found, func(w io.Writer) { table(w, found) })
}

// matches says whether something is what the flags ask for.
func (a *adoption) matches(s sender) bool {
	return (!a.source.IsValid() || s.source == a.source) && (a.port == 0 || s.port == a.port)
}

func objects(n int) string {
	if n == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", n)
}
