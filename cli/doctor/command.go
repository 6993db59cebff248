// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"net"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/cli/up"
	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/usage"
)

// Command returns `substorm doctor`.
func Command() *cobra.Command {
	cfg := Config{}
	var format output.Format
	c := &cobra.Command{
		Use:   "doctor [-f FILE|FOLDER]...",
		Short: "Say whether this computer can run a Site by itself, and what a power cut would lose",
		Long: `Looks at what substorm up needs of a computer, and prints a line for each check: OK, WARNING or FAILED, what was found and what to do.
It takes the flags of substorm up, and may be run before it, or while the Site runs.

  manifests    are the files those of a Site
  clock        was it set, does it go backward, is it synchronised
  expiry clock is the clock ahead of the time by which data expires
  data folder  may it be written, by whom, of which format, which process has it
  space        bytes and files that are left
  sync         how long the disk takes to keep 4 KiB and 8 MiB; it writes 9 MB into the data folder and removes them
  disk budget  how much of --disk-budget is used, and by what
  power cut    what would be lost, as far as can be seen from here
  ports        are those of Instruments, FeedServers and metrics free, or held by the Site itself
  rights       user, umask and open files of the running Site, or of this command
  memory       how much is left
  hub          how long the name and a connection of the hub in spec.upstream, and of each --hub, take

It exits with 1 where a check failed, and with 0 where none did.`,
		Example: `  # Before a Site is run:
  substorm doctor -f manifests/

  # A station that runs as a service, and a server elsewhere:
  substorm doctor --data-dir /var/lib/substorm -f /etc/substorm --hub hub.example.org:7422 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.check(); err != nil {
				return err
			}
			shown := progress.Start(cmd.ErrOrStderr(), false, nil)
			report, err := Run(cmd.Context(), cfg, shown)
			shown.Stop()
			if err != nil {
				return err
			}
			if err := output.One(cmd.OutOrStdout(), format, report, report.print); err != nil {
				return err
			}
			return report.verdict()
		},
	}
	f := c.Flags()
	f.StringArrayVarP(&cfg.Manifests, "file", "f", nil, "file or folder with manifests, as for substorm up; may be repeated")
	kube.AddDataDir(f, &cfg.DataDir, "data folder of substorm up")
	f.StringVar(&cfg.Listen, "listen", up.DefaultListen, "where the first FeedServer serves; each further one takes the next port")
	f.StringVar(&cfg.ListenMetrics, "listen-metrics", up.DefaultListenMetrics, "where metrics are served; empty: nowhere")
	up.AddDiskBudget(f, &cfg.DiskBudget)
	f.StringArrayVar(&cfg.Hubs, "hub", nil, "host:port of a server to ask for beside the hub in spec.upstream; may be repeated")
	format.Add(c, "one document")
	return c
}

// check finds flags that make no sense.
func (c *Config) check() (err error) {
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return err
	}
	if err := up.CheckAddresses(c.Listen, "", c.ListenMetrics); err != nil {
		return err
	}
	if _, err := up.DiskBudget(c.DiskBudget); err != nil {
		return usage.Errorf("%w", err)
	}
	for _, hub := range c.Hubs {
		if host, port, err := net.SplitHostPort(hub); err != nil || host == "" || port == "" {
			return usage.Errorf("--hub %q: it must be host:port, such as hub.example.org:7422", hub)
		}
	}
	return nil
}
