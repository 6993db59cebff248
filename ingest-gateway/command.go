// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/substorm/substorm/internal/flags"
)

const example = `  ingest-gateway --site demo --pool north --gateway north-0 --data-dir /var/lib/substorm \
    --ports 30100-30149 --nats-servers nats://127.0.0.1:4222 \
    --s3-endpoint http://127.0.0.1:9000 --s3-bucket substorm --s3-credentials-dir /etc/substorm/s3`

// Command is the program. Each flag has its default in SUBSTORM_<FLAG>.
func Command() *cobra.Command {
	cfg := Config{Log: os.Stderr}
	var ports string
	cmd := &cobra.Command{
		Use:   "ingest-gateway",
		Short: "Receive what a Site's instruments send, archive it and announce it",
		Long: "Receive what a Site's instruments send, archive it and announce it.\n\n" +
			"Instruments are those of the Site's registry in JetStream, which the operator writes.\n" +
			"Each flag may be given as an environment variable too: --s3-bucket as SUBSTORM_S3_BUCKET.",
		Example:       example,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.FromEnvironment(cmd.Flags(), os.Getenv); err != nil {
				return err
			}
			var err error
			if cfg.FirstPort, cfg.LastPort, err = parsePorts(ports); err != nil {
				return err
			}
			if os.Getenv("TMPDIR") == "" { // a pod can write on its volume alone: see internal/manifest
				if err := os.Setenv("TMPDIR", cfg.DataDir); err != nil {
					return err
				}
			}
			return Run(cmd.Context(), cfg)
		},
	}
	addFlags(cmd.Flags(), &cfg, &ports)
	return cmd
}

func addFlags(f *pflag.FlagSet, cfg *Config, ports *string) {
	f.SortFlags = false
	f.StringVar(&cfg.Site, "site", "", "code of the Site")
	f.StringVar(&cfg.Pool, "pool", "", "name of the IngestGateway")
	f.StringVar(&cfg.Gateway, "gateway", "", "name of this pod")
	f.StringVar(&cfg.Node, "node", "", "name of the node")
	f.StringVar(&cfg.PodIP, "pod-ip", "", "address of this pod")
	f.StringVar(&cfg.DataDir, "data-dir", "/var/lib/substorm", "the pod's volume: spool, scratch, the registry last seen, counters")
	f.StringVar(&cfg.ListenHTTP, "listen-http", ":8080", "address of /healthz, /readyz and /metrics")
	f.StringVar(ports, "ports", "30100-30149", "range of the ports that data comes to")

	f.StringVar(&cfg.ListenAddress, "listen-address", "", "IP address on which these ports are opened (empty: all)")

	f.StringVar(&cfg.TLSDir, "tls-dir", "", "folder with tls.crt and tls.key: the certificate that senders see")
	f.StringVar(&cfg.ClientCADir, "client-ca-dir", "", "folder with ca.crt: the authorities of the senders' certificates")

	f.Uint16Var(&cfg.EdgePort, "edge-port", 0, "port for proxies that speak the PROXY protocol, version 2 (0: none)")
	flags.CIDRs(f, &cfg.EdgeSources, "edge-sources", "addresses of those proxies, as CIDRs")
	f.Uint16Var(&cfg.LinkProbePort, "link-probe-port", 0, "UDP port that answers senders who measure the link to here, by STAMP (0: none)")
	f.StringVar(&cfg.MirrorListen, "mirror-listen", "", "address on which runs of mirrors send what they pulled (empty: none)")
	f.StringVar(&cfg.UnknownSenders, "unknown-senders", "Refuse", "what becomes of data that no instrument claims: Refuse or Quarantine")
	f.Int64Var(&cfg.QuarantineMaxSize, "quarantine-max-size", 1<<30, "bytes of the bucket that this pod keeps of unknown senders")
	f.DurationVar(&cfg.QuarantineRetention, "quarantine-retention", 168*time.Hour, "how long they are kept")
	f.UintSliceVar(&cfg.QuarantinePorts, "quarantine-ports", nil, "ports that are open to unknown senders beside those of instruments")

	flags.ObjectStore(f, &cfg.Objects, "URL of the object store", "bucket of the archive")
	flags.NATS(f, &cfg.NATS)

	f.Int64Var(&cfg.MemoryBudget, "memory-budget", 0, "bytes for what is received and not yet safe (0: half of the memory limit)")
	f.Int64Var(&cfg.MaxConnections, "max-connections", 0, "connections of TCP and HTTP that may be open at a time; a quarter of them at most while it is not known who sends (0: by the memory limit)")
	f.DurationVar(&cfg.Gather, "gather", 0, "how long datagrams may wait in memory for those of other instruments, 1s at most, "+
		"where acknowledge is StoredOrSpooled or Spooled (0: 100ms, as all others)")
	f.Int64Var(&cfg.SpoolSize, "spool-size", 0, "bytes on the volume for what is receipted and not yet in the store (0: 45% of what is free)")
	f.StringVar(&cfg.Replica.Listen, "replica-listen", "", "address on which copies of other gateways' spools are taken (empty: no copies, acknowledge Replicated acts as Stored)")
	f.StringVar(&cfg.Replica.TLSDir, "replica-tls-dir", "", "folder with the pool's ca.crt, tls.crt and tls.key")
	f.DurationVar(&cfg.Replica.After, "replica-after", 5*time.Minute, "how long a gateway may be silent before others store their copies of its spool")
	f.DurationVar(&cfg.DrainTimeout, "drain-timeout", time.Minute, "how long what was begun may take to finish")
	f.StringVar(&cfg.LogLevel, "log-level", "info", "debug, info, warn or error")
}

// parsePorts reads "first-last" or a single port.
func parsePorts(s string) (first, last uint16, err error) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	a, errA := strconv.ParseUint(from, 10, 16)
	b, errB := strconv.ParseUint(to, 10, 16)
	if errA != nil || errB != nil || a == 0 || a > b {
		return 0, 0, fmt.Errorf("--ports %q is not a range of ports such as 30100-30149", s)
	}
	return uint16(a), uint16(b), nil
}
