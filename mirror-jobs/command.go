// SPDX-License-Identifier: Apache-2.0

package mirrorjobs

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/substorm/substorm/internal/flags"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

const example = `  mirror-jobs --site demo --partner uni --run by-hand --trigger manual --verify-only \
    --scratch-dir /tmp/mirror --credentials-dir /etc/substorm/partner \
    --nats-servers nats://127.0.0.1:4222 \
    --s3-endpoint http://127.0.0.1:9000 --s3-bucket substorm --s3-credentials-dir /etc/substorm/s3`

// Command is the program. Each flag has its default in SUBSTORM_<FLAG>.
func Command() *cobra.Command {
	cfg := Config{Log: os.Stderr}
	var from, to string
	cmd := &cobra.Command{
		Use:   "mirror-jobs",
		Short: "Make one run of a MirrorPartner, or follow what is announced",
		Long: "Make one run of a MirrorPartner, or follow what is announced.\n\n" +
			"It moves what the MirrorPartner selects as the Site's registry says, reports how far it is,\n" +
			"and exits with 0 once the other side has all of it.\n" +
			"Each flag may be given as an environment variable too: --s3-bucket as SUBSTORM_S3_BUCKET.",
		Example:       example,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.FromEnvironment(cmd.Flags(), os.Getenv); err != nil {
				return err
			}
			for _, bound := range []struct {
				flag, text string
				to         *time.Time
			}{{"--observed-from", from, &cfg.From}, {"--observed-to", to, &cfg.To}} {
				if bound.text == "" {
					continue
				}
				t, err := time.Parse(time.RFC3339, bound.text)
				if err != nil {
					return usage.Errorf("%s %q is not a time such as 2026-11-21T12:00:00Z", bound.flag, bound.text)
				}
				*bound.to = t.UTC()
			}
			if os.Getenv("TMPDIR") == "" { // a pod can write on its volume alone
				if err := os.Setenv("TMPDIR", cfg.ScratchDir); err != nil {
					return fmt.Errorf("TMPDIR: %w", err)
				}
			}
			return Run(cmd.Context(), cfg)
		},
	}
	addFlags(cmd.Flags(), &cfg, &from, &to)
	return cmd
}

func addFlags(f *pflag.FlagSet, cfg *Config, from, to *string) {
	f.SortFlags = false
	f.StringVar(&cfg.Site, "site", "", "code of the Site")
	f.StringVar(&cfg.Partner, "partner", "", "name of the MirrorPartner")
	f.StringVar(&cfg.Run, "run", "", "name of the run in reports, as that of its Job")
	f.StringVar(&cfg.Pod, "pod", "", "name of this pod")
	f.StringVar(&cfg.Trigger, "trigger", wire.MirrorScheduled,
		"what the run was begun by: scheduled, manual; continuous: it follows what is announced, and never ends; timetable: it begins runs itself, as the schedule says")
	f.StringVar(from, "observed-from", "", "move only what was observed from a time on (RFC 3339)")
	f.StringVar(to, "observed-to", "", "move only what was observed before a time (RFC 3339)")
	f.BoolVar(&cfg.VerifyOnly, "verify-only", false, "compare all that is selected with what the other side has, and move nothing")
	f.BoolVar(&cfg.Force, "force", false, "move and compare all that is selected, whatever was confirmed, and without a safety stop")
	f.StringVar(&cfg.ScratchDir, "scratch-dir", "/var/lib/substorm", "folder for what is on its way; nothing in it is missed")
	f.Int64Var(&cfg.ScratchSize, "scratch-size", 0, "what large objects that are pulled from another Substorm may take of the disk there, in bytes; 0: what is free")
	f.StringVar(&cfg.CredentialsDir, "credentials-dir", "", "folder with the credentials of the MirrorPartner, where it needs any")
	f.StringVar(&cfg.ListenHTTP, "listen-http", ":8080", "address of /healthz, /readyz and /metrics; empty: none")
	flags.ObjectStore(f, &cfg.Objects, "URL of the object store; a pull by rsync or from a web archive needs none", "bucket of the archive")
	flags.NATS(f, &cfg.NATS)
	f.StringVar(&cfg.LogLevel, "log-level", "info", "debug, info, warn or error")
}
