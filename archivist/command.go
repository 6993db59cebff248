// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/substorm/substorm/archivist/scrub"
	"github.com/substorm/substorm/internal/flags"
)

const example = `  archivist --site demo --pod archivist-0 --scratch-dir /var/lib/substorm \
    --nats-servers nats://127.0.0.1:4222 \
    --s3-endpoint http://127.0.0.1:9000 --s3-bucket substorm --s3-credentials-dir /etc/substorm/s3`

// Command is the program. Each flag has its default in SUBSTORM_<FLAG>.
func Command() *cobra.Command {
	cfg := Config{Log: os.Stderr}
	cmd := &cobra.Command{
		Use:   "archivist",
		Short: "Write a Site's manifests and segments, close its days, and keep its archive whole",
		Long: "Write a Site's manifests and segments, close its days, and keep its archive whole.\n\n" +
			"Of all that run for a Site the one that holds the lease works; the others wait for it.\n" +
			"Each flag may be given as an environment variable too: --s3-bucket as SUBSTORM_S3_BUCKET.",
		Example:       example,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.FromEnvironment(cmd.Flags(), os.Getenv); err != nil {
				return err
			}
			if os.Getenv("TMPDIR") == "" { // a pod can write on its volume alone: see internal/manifest
				if err := os.Setenv("TMPDIR", cfg.ScratchDir); err != nil {
					return err
				}
			}
			return Run(cmd.Context(), cfg)
		},
	}
	addFlags(cmd.Flags(), &cfg)
	return cmd
}

func addFlags(f *pflag.FlagSet, cfg *Config) {
	f.SortFlags = false
	f.StringVar(&cfg.Site, "site", "", "code of the Site")
	f.StringVar(&cfg.Pod, "pod", "", "name of this pod")
	f.StringVar(&cfg.ScratchDir, "scratch-dir", "/var/lib/substorm", "folder for what is being written; nothing in it is missed")
	f.StringVar(&cfg.ListenHTTP, "listen-http", ":8080", "address of /healthz, /readyz and /metrics")

	flags.ObjectStore(f, &cfg.Objects, "URL of the object store", "bucket of the archive")
	flags.NATS(f, &cfg.NATS)

	f.Int64Var(&cfg.Memory, "memory", 0, "bytes for what is remembered of the archive (0: half of the memory limit)")
	f.DurationVar(&cfg.ObservationRetention, "observation-retention", 72*time.Hour, "how long archived telemetry stays on its stream")
	f.DurationVar(&cfg.NoticeRetention, "notice-retention", 72*time.Hour, "how long listed notices stay on their stream")
	f.DurationVar(&cfg.PartInterval, "part-interval", time.Minute, "how often manifest parts are closed")
	f.DurationVar(&cfg.CompactAfter, "compact-after", 24*time.Hour, "how long after its end a day is compacted")
	f.DurationVar(&cfg.CompactGrace, "compact-grace", 24*time.Hour, "how long readers may use what a compaction replaced")
	f.Int64Var(&cfg.ScrubRate, "scrub-rate", scrub.DefaultRate, "bytes a second of the archive that are compared with their digests, over and over (negative: none)")
	flags.CIDRs(f, &cfg.ForwardNetworks, "forward-networks", "networks, as CIDRs, to which copies for old servers may go beside public addresses")
	f.StringVar(&cfg.LogLevel, "log-level", "info", "debug, info, warn or error")
}
