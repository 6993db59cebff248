// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/usage"
)

const long = `Sends the traffic of a study, or of a mixture from a file, and reports what was
sent, receipted, refused, and how long receipts took. Over TCP an object counts
only with a receipt for its very digest and size, as in substorm send; UDP has
none, so of datagrams only what was sent is known.

  rtemp   objects of 32 KiB doubled up to 8 MiB, as fast as receipts come
  uarc    Fabry-Perot 250 B/3 min, magnetometer 1.5 kB/min, radar 5.3 kB/5 s, all-sky 20 kB/min
  oasis   datagrams of 140 and 236 B, 161,638 a minute (--rate sets another)
  evlbi   bursts and silence of 500 ms on average (exponential), 374.5 Mb/s over all

The same --seed draws the same objects at the same times. Sent again they count
as repeated in the archive: choose another seed for new ones.

A file names sources; each draws one of its sizes for each object:

  sources:
  - name: camera            # count of these instruments, each with its own rhythm
    count: 20
    sizes: [200k, 1Mi]
    deviationPercent: 20    # Gaussian around the size; default 0
    every: 30s              # or rate: objects a second; with neither, as fast as receipts come
    poisson: true           # exponential intervals; default regular
  - name: probe
    protocol: UDP
    sizes: [140]
    rate: 100
    bursts: {lasting: 500ms, silence: 500ms}

It exits with 0 only when every object has its receipt and every datagram left.`

// Command returns `substorm simulate`.
func Command() *cobra.Command {
	var cfg Config
	var model string
	var format output.Format
	var quiet bool
	cmd := &cobra.Command{
		Use:   "simulate --model rtemp|uarc|oasis|evlbi|FILE --to [SOURCE=]HOST:PORT[,HOST:PORT]",
		Short: "Send the traffic of a study, and report receipts and how long they took",
		Long:  long,
		Example: `  substorm simulate --model rtemp --senders 3 --duration 2m --to gateway.example:30101
  substorm simulate --model uarc --duration 1h --to gateway.example:30102 --to radar=gateway.example:30103
  substorm simulate --model oasis --rate 500 --duration 1m --to gateway.example:30104
  substorm simulate --model storm.yaml --seed 7 -o json --to gateway.example:30101 > report.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if model == "" {
				return errors.New("--model is missing: rtemp, uarc, oasis, evlbi or a file")
			}
			if cfg.Model, err = Load(model); err != nil {
				return err
			}
			if err := cfg.check(); err != nil {
				return err
			}
			if !cmd.Flags().Changed("seed") {
				cfg.Seed = uint64(time.Now().UnixNano())
			}
			if !quiet {
				cfg.Messages = cmd.ErrOrStderr()
				fmt.Fprintf(cfg.Messages, "%s; seed %d\n", cfg.Model.about(), cfg.Seed)
			}
			report, err := Run(cmd.Context(), cfg)
			if report == nil {
				return err
			}
			return errors.Join(err, output.One(cmd.OutOrStdout(), format, report, report.WriteText))
		},
	}
	f := cmd.Flags()
	f.StringVar(&model, "model", "", "rtemp, uarc, oasis, evlbi, or a YAML file")
	_ = cmd.RegisterFlagCompletionFunc("model", cobra.FixedCompletions([]string{"rtemp", "uarc", "oasis", "evlbi"}, cobra.ShellCompDirectiveDefault)) // or a file
	f.StringArrayVar(&cfg.To, "to", nil, "servers, [SOURCE=]host:port or host:first-last, separated by commas; with SOURCE= for that source alone")
	f.Uint64Var(&cfg.Seed, "seed", 0, "decides all that is drawn (default: another one each time)")
	f.DurationVar(&cfg.Duration, "duration", time.Minute, "how long to simulate; what is due by then is sent to its end")
	f.Float64Var(&cfg.Rate, "rate", 0, "objects and datagrams a second in all, on average (default: the model's own)")
	f.IntVar(&cfg.Senders, "senders", 3, "connections at a time, and UDP sockets for each source")
	f.DurationVar(&cfg.ReceiptTimeout, "receipt-timeout", time.Minute, "how long a server may take to give the receipt, or to take more bytes")
	f.DurationVar(&cfg.GiveUpAfter, "give-up-after", time.Minute, "how long to go on trying an object; 0 tries each server and port once")
	format.Add(cmd, "one document, with the whole histogram")
	f.BoolVarP(&quiet, "quiet", "q", false, "print nothing but the report and errors")
	return cmd
}

// check finds flags that make no sense.
func (cfg *Config) check() error {
	switch {
	case len(cfg.To) == 0:
		return usage.Errorf("--to is missing: where is the gateway? --to gateway.example:30101")
	case cfg.Duration <= 0:
		return usage.Errorf("--duration must be positive, such as --duration 1m")
	case cfg.Rate < 0 || cfg.Rate > maxRate:
		return usage.Errorf("--rate is a number of objects a second, up to a million")
	case cfg.Senders < 1 || cfg.Senders > 4096:
		return usage.Errorf("--senders is a number from 1 to 4096")
	case cfg.ReceiptTimeout <= 0 || cfg.GiveUpAfter < 0:
		return usage.Errorf("--receipt-timeout must be positive, and --give-up-after at least as long")
	}
	return nil
}

// about is a line on the model.
func (m *Model) about() string {
	if m.About == "" {
		return "model " + m.Name
	}
	return m.About
}
