// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/feed-server/rsync"
	"github.com/substorm/substorm/internal/flags"
)

const example = `  feed-server --site demo --pod feed-server-0 --listen :8080 --listen-http :9090 --nats-servers nats://127.0.0.1:4222`

// Command is the program. Each flag has its default in SUBSTORM_<FLAG>.
func Command() *cobra.Command {
	cfg := Config{Log: os.Stderr}
	cmd := &cobra.Command{
		Use:   "feed-server",
		Short: "Give consumers of a Site's Feeds what is new, as it comes, and everybody its archive",
		Long: "Give consumers of a Site's Feeds what is new, as it comes, and everybody its archive.\n\n" +
			"Feeds and their consumers are those of the Site's registry in JetStream, which the operator writes.\n" +
			"Each flag may be given as an environment variable too: --nats-servers as SUBSTORM_NATS_SERVERS.",
		Example:       example,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.FromEnvironment(cmd.Flags(), os.Getenv); err != nil {
				return err
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
	f.StringVar(&cfg.FeedServer, "feed-server", "", "name of the FeedServer that the pod belongs to (empty outside Kubernetes)")
	f.StringVar(&cfg.Pod, "pod", "", "name of this pod")
	f.StringVar(&cfg.Listen, "listen", ":8080", "address for consumers")
	f.StringVar(&cfg.TLSDir, "tls-dir", "", "folder with tls.crt and tls.key: the certificate that consumers see (empty: plain, behind an edge)")
	f.StringVar(&cfg.ClientCADir, "client-ca-dir", "", "folder with ca.crt: the authorities of readers' certificates (empty: readers show tokens alone)")
	f.StringVar(&cfg.ListenHTTP, "listen-http", ":9090", "address of /healthz, /readyz and /metrics")

	flags.NATS(f, &cfg.NATS)
	flags.ObjectStore(f, &cfg.Objects, "URL of the object store with the archive (empty: live Feeds alone)", "bucket of the archive, which is only read")
	f.StringVar(&cfg.BaseURL, "base-url", "", "address of the archive for others, https://archive.example.org (empty: that of each request)")
	f.StringVar(&cfg.NotificationURL, "notification-url", "", "address of the archive in WIS2 notifications, that of another FeedServer of the Site (empty: --base-url)")
	f.StringSliceVar(&cfg.Proxies, "proxies", nil, "addresses (CIDR) of proxies whose X-Forwarded-For, -Proto, -Host and -Port are believed")

	f.StringVar(&cfg.RsyncAddress, "rsync-address", "", "address at which rsync copies what everybody may read of the archive, :8873 (empty: nowhere); nothing is encrypted there")
	f.DurationVar(&cfg.RsyncWindow, "rsync-window", rsync.DefaultWindow, "how far back rsync's module reaches, by time of receipt")
	f.IntVar(&cfg.RsyncMaxTransfers, "rsync-max-transfers", 0, "transfers of rsync of all clients together (0: as many as fit in the memory that it has)")

	limits := endpoint.DefaultLimits()
	rate := func(r *endpoint.Rate, class string, is endpoint.Rate, of string) {
		f.Float64Var(&r.PerSecond, class+"-requests-per-second", is.PerSecond, "requests to the archive that one client may make, on the average: "+of)
		f.IntVar(&r.Burst, class+"-burst", is.Burst, "requests that such a client may make at once, after it made none for a while")
	}
	rate(&cfg.Limits.Person, "person", limits.Person, "a browser")
	rate(&cfg.Limits.Robot, "robot", limits.Robot, "a program, such as a partner's mirror")
	f.Float64Var(&cfg.Limits.Failures.PerSecond, "failures-per-second", limits.Failures.PerSecond,
		"tokens, tickets and certificates that are nobody's that one address may show, on the average; more are answered 429")
	f.IntVar(&cfg.Limits.Failures.Burst, "failures-burst", limits.Failures.Burst, "of these at once")
	f.DurationVar(&cfg.Limits.Patience, "request-patience", limits.Patience, "how long a request that comes too early waits for its turn; one that would wait longer is answered 429")
	f.IntVar(&cfg.Limits.Waiting, "waiting-requests", limits.Waiting, "requests that wait for their turn at a time, of all clients together; more are answered 429")
	f.IntVar(&cfg.Limits.Clients, "limited-clients", limits.Clients, "clients that are remembered: those that asked last")

	f.Int64Var(&cfg.ArchiveSize, "archive-size", 0, "bytes of objects and manifests asked for often that are held in memory (0: five sixteenths of the memory limit, or 256 MiB)")
	f.Int64Var(&cfg.RingSize, "ring-size", 0, "bytes of the streams' newest messages that are held in memory, of all together (0: an eighth of the memory limit, or 64 MiB)")
	f.IntVar(&cfg.MaxConnections, "max-connections", 0, "live connections and event streams of all clients together (0: as many as fit in the memory limit at 512 KiB each)")
	f.IntVar(&cfg.MaxSockets, "max-sockets", 0, "connections of TCP, and requests that are answered at a time (0: as many as fit in the memory limit, at least twice --max-connections)")
	f.BoolVar(&cfg.GiveWay, "give-way", false, "while CPU or memory for requests is used up, answer programs without a token 503, then bundles, mirrors and rsync too, so that people are answered")
	f.StringVar(&cfg.AccessLog, "access-log", "stdout", "where to log, as lines of JSON, who read what is Restricted or under embargo: off, stdout, or a file to which lines are added")
	f.IntVar(&cfg.Readers, "readers", 4, "how many consumers that are behind that read a stream at a time")
	f.DurationVar(&cfg.DrainTimeout, "drain-timeout", 30*time.Second, "how long clients may take to go when the program stops")
	f.StringVar(&cfg.LogLevel, "log-level", "info", "debug, info, warn or error")
}
