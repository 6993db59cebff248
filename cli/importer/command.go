// SPDX-License-Identifier: Apache-2.0

// Package importer is `substorm import`: it registers trees that exist already in a Site's archive. The manifests
// alone tell what was registered, so a run can be killed at any point and be continued from another machine.
package importer

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/substorm/substorm/internal/naming"
	"github.com/substorm/substorm/internal/usage"
)

const long = `Registers a tree that exists already, with times and names read from the paths.

A DIR's files are uploaded under o/<site>/<instrument>/n/<path in DIR>. With
--in-place the objects of the Site's own bucket stay where they lie, and are
listed there; nothing of such a tree is ever changed or removed by Substorm.

Of each thing the archive records: its path as its name, its SHA-256, its
modification time as receivedAt (so that an old tree lies in the days when it
came, not all in today), and what the template reads as observation time.

A second run reads only what changed: what the manifests list with the same
size and modification time is passed over. A run that was killed is simply run
again, from any machine; nothing is kept but the archive itself. Other bytes
under a name that the archive has become a new version; the old one stays.

What cannot be placed is reported with the reason, all else is imported, and
the exit code is 1. Nothing that is there is overwritten.

The template is matched against the whole path below DIR or PREFIX:
`

const example = `  substorm import /data/allsky -i allsky-1 --name-template '{year}/{month}/{day}/{station}_{hour}{minute}{second}.{any}'
  substorm import archive/old/allsky --in-place -i allsky-1 --name-template '{year}{doy}/{any}' --dry-run
  substorm import archive/old/allsky --in-place -i allsky-1 --name-template '{year}{doy}/{any}' --checksums SHA256SUMS --trust-checksums
  substorm import /data/mag -i mag-1 --name-template '{name}' -o json | jq -r 'select(.outcome == "unplaced") | .reason'`

// Command returns `substorm import`.
func Command() *cobra.Command {
	var cfg Config
	cmd := &cobra.Command{
		Use:     "import DIR | BUCKET[/PREFIX] --instrument INSTRUMENT --name-template TEMPLATE",
		Short:   "Register an existing tree of files or objects in the archive",
		Long:    long + fields(),
		Example: example,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cfg.check(); err != nil {
				return err
			}
			cfg.Tree, cfg.Backend.ImportFor = args[0], cfg.Instrument
			cfg.Out, cfg.Notes = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return Run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&cfg.Instrument, "instrument", "i", "", "instrument that the tree is of")
	f.StringVarP(&cfg.NameTemplate, "name-template", "t", "", "how the paths look, see above; {name} takes all and tells nothing")
	f.BoolVar(&cfg.InPlace, "in-place", false, "register objects of the Site's bucket where they lie")
	f.StringVar(&cfg.Checksums, "checksums", "", "`FILE` that sha256sum wrote, with names as below DIR or PREFIX: bytes that differ are not imported")
	f.BoolVar(&cfg.TrustChecksums, "trust-checksums", false, "with --in-place, believe --checksums without reading the objects; their records say so")
	f.DurationVar(&cfg.Settle, "settle", 2*time.Second, "leave what was written to in this time: it may be again")
	f.IntVar(&cfg.Parallel, "parallel", 4, "files or objects that are read at the same time")
	f.DurationVar(&cfg.Wait, "wait", 5*time.Minute, "how long to wait for another import of the instrument, and for the manifests")
	f.BoolVar(&cfg.DryRun, "dry-run", false, "say what would be imported, and read and store nothing")
	cfg.Format.Add(cmd, "one object per line: outcome unplaced, version and, last, summary")
	f.BoolVarP(&cfg.Quiet, "quiet", "q", false, "show no progress")
	cfg.Backend.AddFlags(f)
	return cmd
}

// check finds flags that make no sense.
func (cfg *Config) check() error {
	switch {
	case cfg.Instrument == "":
		return usage.Errorf("--instrument is missing: name the Instrument of the tree")
	case len(validation.IsDNS1123Label(cfg.Instrument)) > 0:
		return usage.Errorf("--instrument %q is not a name of an Instrument: %s", cfg.Instrument, strings.Join(validation.IsDNS1123Label(cfg.Instrument), "; "))
	case cfg.NameTemplate == "":
		return usage.Errorf("--name-template is missing: describe the paths; '{name}' takes all and tells nothing")
	case cfg.TrustChecksums && (cfg.Checksums == "" || !cfg.InPlace):
		return usage.Errorf("--trust-checksums goes with --checksums FILE and --in-place: what is uploaded is read in any case")
	case cfg.Parallel < 1 || cfg.Parallel > 1024:
		return usage.Errorf("--parallel is a number from 1 to 1024")
	case cfg.Settle < 0 || cfg.Wait < 0:
		return usage.Errorf("--settle and --wait are durations, or 0")
	}
	return nil
}

// fields says what a template may hold.
func fields() string {
	var b strings.Builder
	for _, f := range naming.Fields {
		fmt.Fprintf(&b, "\n  %-14s %s", "{"+f.Name+"}", f.Help)
	}
	return b.String()
}
