// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender/service"
)

// udpRate is how many datagrams go out a second unless --rate says otherwise:
// far below what overflows a receiver's socket buffer.
const udpRate = 1000

// Defaults of flags.
const (
	connectTimeout = 5 * time.Second
	receiptTimeout = time.Minute
	hedgeAfter     = time.Second
)

// options are the flags as they are written.
type options struct {
	cfg           Config
	to            []string
	from, framing string
	waiting       queueFlags
	secured       tlsFlags
	web           httpFlags
	dryRun        bool
}

// Command returns `substorm send`. Prefix are the words between a program and
// its flags by which this command is called: "send", or none.
func Command(prefix ...string) *cobra.Command {
	cmd := command()
	cmd.AddCommand(service.Command(prefix, parseForService))
	return cmd
}

// parseForService reads a command line that the system is to run.
func parseForService(args []string) (service.Sender, error) {
	cmd, o := newCommand()
	if err := cmd.ParseFlags(args); err != nil {
		return service.Sender{}, usage.Errorf("after --: %w", err)
	}
	if err := o.complete(cmd); err != nil {
		return service.Sender{}, err
	}
	// A service has no terminal to ask for confirmation. The user who prints a unit may lack the
	// permission to read the queue.
	if _, err := o.cfg.confirmWatched(); err != nil && !errors.Is(err, fs.ErrPermission) {
		return service.Sender{}, err
	}
	q := o.cfg.Queue
	var secrets []string
	for _, file := range []string{o.web.config.TokenFile, o.secured.cert, o.secured.key} {
		if file != "" {
			secrets = append(secrets, file)
		}
	}
	return service.Sender{Queue: q.Dir, Watch: q.Watch, Move: q.Move, Secrets: secrets}, nil
}

func command() *cobra.Command {
	cmd, o := newCommand()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.complete(cmd); err != nil {
			return err
		}
		cfg := o.cfg
		cfg.Paths, cfg.Stdin = args, cmd.InOrStdin()
		if o.dryRun {
			cfg.Messages = cmd.ErrOrStderr()
			return dryRun(cfg, cmd.OutOrStdout())
		}
		cfg.Ask = AskOn(cfg.Stdin, cmd.ErrOrStderr())
		if cfg.Queue.Dir == "" {
			cfg.Messages = cmd.ErrOrStderr()
			return Run(cmd.Context(), cfg)
		}
		return service.Run(cmd.Context(), cmd.ErrOrStderr(), func(ctx context.Context, messages io.Writer) error {
			cfg.Messages = messages
			return Run(ctx, cfg)
		})
	}
	return cmd
}

func newCommand() (*cobra.Command, *options) {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "send --to HOST:PORT[,HOST:PORT] FILE... | DIR | - | --watch DIR --queue DIR",
		Short: "Send files, folders or lines, and believe only a receipt",
		Args:  cobra.ArbitraryArgs,
		Long: `Sends each file as one object over TCP or HTTP. An object counts as received only when the
server answers with a receipt for its very digest and size; a connection that
merely closes means "unknown", and the object is sent again, to the next server
or port. A refusal that another try cannot change (ObjectTooLarge,
UnknownSource, Retired, Empty) is final; everything else is tried again until
--give-up-after has passed.

An object that is interrupted half-way is reset, so no half arrives as a whole.

Folders whose files do not look like those of one instrument (more than 10 files with
more than 2 suffixes, hidden files, names or contents of keys or credentials) are sent only after
a question on the terminal, or with --yes: what is received is archived, and may be
public. Of folders of --watch that is asked once, about what lies in them then.
--dry-run lists what would be sent.

--framing says what tcp.framing of the Instrument is. With until-close each object
has a connection of its own, with length-prefixed there is one to each server, and
--parallel objects are on their way over all of them.

Over TLS (--tls, --tls-ca) the server is known by its certificate, and with
--tls-cert and --tls-key it knows the sender by one.

With --queue objects wait on the disk until they have their receipt: what has none
is sent after a restart or a power cut. With --watch, which never ends, new files
of folders are sent as they come; see "substorm send service" to have that run by
the system. See docs/how-to/sender.md.

With URLs (--to http://host:port/in/INSTRUMENT/) objects go over HTTP, under the
names of their files. One of more than 1 MiB goes on where it broke off, at
whichever server, and with --queue also after a restart. Other bytes under a name
that is taken are refused (NameConflict): --name-from says what names objects.

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
  substorm send --to http://node1:30103/in/allsky-1/,http://node2:30103/in/allsky-1/ --queue /var/lib/substorm-send night.tar
  substorm send --to https://gateway.example:30103/in/allsky-1/ --tls-ca ca.crt --token-file token --name-from base frame.jpg
  tail -F mag.txt | substorm send --udp --lines --to gateway.example:30102 -`,
	}
	o.flags(cmd)
	return cmd, o
}

// complete reads the flags and finds what makes no sense.
func (o *options) complete(cmd *cobra.Command) (err error) {
	cfg := &o.cfg
	if o.from != "" {
		if cfg.From, err = netip.ParseAddr(o.from); err != nil {
			return usage.Errorf("--from %q is not an IP address", o.from)
		}
	}
	if cfg.Framing, err = parseFraming(o.framing); err != nil {
		return err
	}
	if cfg.UDP && cmd.Flags().Changed("framing") {
		return usage.Errorf("--framing is for TCP: over UDP each packet is a datagram")
	}
	if cfg.TLS, err = o.secured.config(); err != nil {
		return err
	}
	if err := o.web.parse(cmd, o.to, cfg); err != nil {
		return err
	}
	if cfg.UDP && cfg.TLS != nil {
		return usage.Errorf("--tls is for TCP: datagrams are not encrypted")
	}
	if err := cfg.check(); err != nil {
		return err
	}
	if err := o.waiting.parse(cmd, cfg); err != nil {
		return err
	}
	if cfg.UDP && !cmd.Flags().Changed("rate") {
		cfg.Rate = udpRate
	}
	return nil
}

func (o *options) flags(cmd *cobra.Command) {
	cfg, f := &o.cfg, cmd.Flags()
	f.StringArrayVar(&o.to, "to", nil, "servers, separated by commas: host:port or host:first-last; or URLs, http[s]://host:port/in/INSTRUMENT/[FOLDER/]")
	f.BoolVar(&cfg.UDP, "udp", false, "send datagrams over UDP, which has no receipt")
	f.BoolVar(&cfg.Lines, "lines", false, "send each line, without its end, as an object or datagram of its own; empty lines are passed over")
	f.StringVar(&o.framing, "framing", "until-close", "tcp.framing of the Instrument: until-close or length-prefixed")
	usage.OneOf(cmd, "framing", "until-close", "length-prefixed")
	f.StringVar(&o.from, "from", "", "local `ADDRESS` to send from (instruments are known by it)")
	f.IntVar(&cfg.Parallel, "parallel", 4, "objects on their way at the same time")
	f.Float64Var(&cfg.Rate, "rate", 0, fmt.Sprintf("objects or datagrams a second; 0 is no limit (default over UDP %d)", udpRate))
	f.DurationVar(&cfg.ConnectTimeout, "connect-timeout", connectTimeout, "how long a server may take to accept")
	f.DurationVar(&cfg.ReceiptTimeout, "receipt-timeout", receiptTimeout, "how long a server may take to give the receipt, or to take more bytes")
	f.DurationVar(&cfg.HedgeAfter, "hedge-after", hedgeAfter, "how long a server may be silent, or three times what was usual lately, before an object is tried at another one too; 0 is never")
	f.DurationVar(&cfg.GiveUpAfter, "give-up-after", 5*time.Minute, "how long to go on trying an object; 0 tries each server and port once")
	f.BoolVarP(&cfg.Yes, "yes", "y", false, "send all that is named, also where its names are of many kinds, or those of keys and credentials")
	f.BoolVar(&o.dryRun, "dry-run", false, "list the size, the file and, over HTTP, the name of each object that would be sent, and send nothing")
	f.StringVar(&cfg.Report, "report", "", "append a line of JSON for each object to this file")
	o.secured.add(cmd)
	o.web.add(cmd)
	o.waiting.add(cmd)
	f.BoolVarP(&cfg.Quiet, "quiet", "q", false, "print nothing but errors")
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
		return usage.Errorf("timeouts must be positive, such as --receipt-timeout 60s")
	case cfg.HedgeAfter < 0:
		return usage.Errorf("--hedge-after is a duration, or 0")
	case cfg.GiveUpAfter < 0:
		return usage.Errorf("--give-up-after is a duration, or 0")
	}
	return nil
}
