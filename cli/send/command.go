// SPDX-License-Identifier: Apache-2.0

package send

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/usage"
	"github.com/substorm/substorm/internal/wire"
)

// udpRate is how many datagrams go out a second unless --rate says otherwise:
// far below what overflows a receiver's socket buffer.
const udpRate = 1000

// Defaults of flags.
const (
	connectTimeout = 5 * time.Second
	receiptTimeout = time.Minute
)

// Command returns `substorm send`.
func Command() *cobra.Command {
	var cfg Config
	var to []string
	var from, framing string
	var waiting queueFlags
	var secured tlsFlags
	cmd := &cobra.Command{
		Use:   "send --to HOST:PORT[,HOST:PORT] FILE... | DIR | -",
		Short: "Send files, folders or lines, and believe only a receipt",
		Long: `Sends each file as one object over TCP. An object counts as received only when the
server answers with a receipt for its very digest and size; a connection that
merely closes means "unknown", and the object is sent again, to the next server
or port. A refusal that another try cannot change (ObjectTooLarge,
UnknownSource, Retired, Empty) is final; everything else is tried again until
--give-up-after has passed.

An object that is interrupted half-way is reset, so no half arrives as a whole.

--framing says what tcp.framing of the Instrument is. With until-close each object
has a connection of its own, with length-prefixed there is one to each server, and
--parallel objects are on their way over all of them.

Over TLS (--tls, --tls-ca) the server is known by its certificate, and with
--tls-cert and --tls-key it knows the sender by one.

With --queue objects wait on the disk until they have their receipt: what has none
is sent after a restart or a power cut. With --watch, which never ends, new files
of folders are sent as they come; see "substorm send service" to have that run by
the system. See docs/sender.md.

With --udp each file, or each line with --lines, is one datagram. UDP has no
receipt: what is counted is what was sent.

--report appends a line of JSON for each object as it happens: name, outcome
(received, refused, unknown, unsent; sent over UDP), sha256, bytes, receiptedAt,
tries, server. It exits with 0 only when everything was received.`,
		Example: `  substorm send --to gateway.example:30101 frame.jpg
  substorm send --to node1:30101-30104,node2:30101-30104 --parallel 8 --report receipts.jsonl /data/2026/11/21
  substorm send --to gateway.example:30103 --framing length-prefixed --parallel 32 /data/spectra
  substorm send --to node1:30103,node2:30103 --framing length-prefixed --watch /data/spectra --queue /var/lib/substorm-send \
      --newest-first --backfill-share 20% --max-rate 25k --daily-budget 500M
  tail -F mag.txt | substorm send --udp --lines --to gateway.example:30102 -`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if cfg.Addresses, err = ParseAddresses(to); err != nil {
				return err
			}
			if from != "" {
				if cfg.From, err = netip.ParseAddr(from); err != nil {
					return usage.Errorf("--from %q is no IP address", from)
				}
			}
			if cfg.Framing, err = parseFraming(framing); err != nil {
				return err
			}
			if cfg.UDP && cmd.Flags().Changed("framing") {
				return usage.Errorf("--framing is of TCP: over UDP each packet is a datagram")
			}
			if cfg.TLS, err = secured.config(); err != nil {
				return err
			}
			if cfg.UDP && cfg.TLS != nil {
				return usage.Errorf("--tls is of TCP: datagrams are plain")
			}
			if err := cfg.check(); err != nil {
				return err
			}
			if err := waiting.parse(cmd, &cfg); err != nil {
				return err
			}
			if cfg.UDP && !cmd.Flags().Changed("rate") {
				cfg.Rate = udpRate
			}
			cfg.Paths, cfg.Stdin, cfg.Messages = args, cmd.InOrStdin(), cmd.ErrOrStderr()
			return Run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&to, "to", nil, "servers: host:port or host:first-last, separated by commas")
	f.BoolVar(&cfg.UDP, "udp", false, "send datagrams over UDP, which has no receipt")
	f.BoolVar(&cfg.Lines, "lines", false, "send each line, without its end, as an object or datagram of its own; empty lines are passed over")
	f.StringVar(&framing, "framing", "until-close", "tcp.framing of the Instrument: until-close or length-prefixed")
	f.StringVar(&from, "from", "", "local address to send from (instruments are known by it)")
	f.IntVar(&cfg.Parallel, "parallel", 4, "objects on their way at the same time")
	f.Float64Var(&cfg.Rate, "rate", 0, fmt.Sprintf("objects or datagrams a second; 0 is no limit (default over UDP %d)", udpRate))
	f.DurationVar(&cfg.ConnectTimeout, "connect-timeout", connectTimeout, "how long a server may take to accept")
	f.DurationVar(&cfg.ReceiptTimeout, "receipt-timeout", receiptTimeout, "how long a server may take to give the receipt, or to take more bytes")
	f.DurationVar(&cfg.GiveUpAfter, "give-up-after", 5*time.Minute, "how long to go on trying an object; 0 tries each server and port once")
	f.StringVar(&cfg.Report, "report", "", "append a line of JSON for each object to this file")
	secured.add(cmd)
	waiting.add(cmd)
	f.BoolVarP(&cfg.Quiet, "quiet", "q", false, "print nothing but errors")
	return cmd
}

// parseFraming reads what --framing takes: a name as flags are spelled, or as in
// the Instrument.
func parseFraming(name string) (string, error) {
	plain := strings.ToLower(strings.ReplaceAll(name, "-", ""))
	for _, framing := range []string{wire.FramingUntilClose, wire.FramingLengthPrefixed} {
		if plain == strings.ToLower(framing) {
			return framing, nil
		}
	}
	return "", usage.Errorf("--framing %q is neither until-close nor length-prefixed", name)
}

// check finds flags that make no sense.
func (cfg *Config) check() error {
	switch {
	case cfg.Parallel < 1 || cfg.Parallel > 1024:
		return usage.Errorf("--parallel is a number from 1 to 1024")
	case cfg.Rate < 0 || math.IsNaN(cfg.Rate) || math.IsInf(cfg.Rate, 0):
		return usage.Errorf("--rate is a number of objects a second, or 0")
	case cfg.ConnectTimeout <= 0 || cfg.ReceiptTimeout <= 0:
		return usage.Errorf("a timeout is longer than nothing: --receipt-timeout 60s")
	case cfg.GiveUpAfter < 0:
		return usage.Errorf("--give-up-after is a duration, or 0")
	}
	return nil
}
