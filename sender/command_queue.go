// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/stamp"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

// Ways of taking files from watched folders, as --take spells them.
const (
	takeKeep = "keep"
	takeMove = "move"
)

// Defaults of flags.
const (
	settle            = 2 * time.Second
	scanInterval      = time.Second
	heartbeat         = time.Minute
	linkProbeInterval = time.Second
)

// queueFlags are the flags of QueueConfig, as written.
type queueFlags struct {
	config                    QueueConfig
	take, share, rate, perDay string
}

func (q *queueFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&q.config.Dir, "queue", "", "folder that keeps what has no receipt, across restarts and power cuts; with --watch for ever, else until it is empty")
	f.StringSliceVar(&q.config.Watch, "watch", nil, "folders whose new files are sent, with their subfolders; needs --queue")
	f.StringVar(&q.take, "take", takeKeep, "what becomes of a watched file once it is in the queue: keep leaves it where it is, move takes it away")
	usage.OneOf(cmd, "take", takeKeep, takeMove)
	f.StringSliceVar(&q.config.Ignore, "ignore", nil, "patterns of names that are not sent, beside "+strings.Join(ignored, " "))
	f.StringSliceVar(&q.config.Rewritten, "rewritten", nil, "patterns of names of watched files that the instrument rewrites, as image.jpg: "+
		"each version is an object of its own, with the time when it was written in its name, image-20261121T170102.345Z.jpg")
	f.DurationVar(&q.config.Settle, "settle", settle, "how long a watched file must not change to be whole; 0 where files are renamed into the folder")
	f.DurationVar(&q.config.ScanInterval, "scan-interval", scanInterval, "how often watched folders are looked at")
	f.BoolVar(&q.config.NewestFirst, "newest-first", false, "send the newest file of the queue first; else the oldest")
	f.StringVar(&q.share, "backfill-share", "20%", "with --newest-first, the share of the bytes that the oldest get")
	f.StringVar(&q.rate, "max-rate", "", "greatest rate, in bytes a second: 25k, 1Mi")
	f.StringVar(&q.perDay, "daily-budget", "", "greatest number of bytes in a UTC day, repeats and heartbeats included: 500M")
	f.StringVar(&q.config.SampleCommand, "sample-command", "", "what the shell runs when the Site asks for another rate of observations: "+
		"SUBSTORM_SAMPLING_STATE is Observing or Paused, _INTERVAL seconds or empty, _CHANNEL a channel or empty")
	f.StringVar(&q.config.LinkProbe, "link-probe", "", fmt.Sprintf("gateway to which the link is measured, host[:port] (default port %d); needs spec.linkProbe of its IngestGateway", stamp.Port))
	f.DurationVar(&q.config.LinkProbeInterval, "link-probe-interval", linkProbeInterval, "with --link-probe, how often a packet of 44 bytes goes there and back")
	f.DurationVar(&q.config.Heartbeat, "heartbeat", heartbeat, "with --framing length-prefixed, how often clock and queue are reported; 0 is never")
}

// parse reads what the flags say, and finds what makes no sense.
func (q *queueFlags) parse(cmd *cobra.Command, cfg *Config) (err error) {
	if q.config.Dir == "" {
		for _, name := range []string{"watch", "take", "ignore", "rewritten", "settle", "scan-interval", "newest-first", "backfill-share", "max-rate", "daily-budget",
			"heartbeat", "sample-command", "link-probe", "link-probe-interval"} {
			if cmd.Flags().Changed(name) {
				return usage.Errorf("--%s needs --queue, the folder that keeps objects without a receipt", name)
			}
		}
		return nil
	}
	for _, name := range []string{"rate", "give-up-after"} {
		if cmd.Flags().Changed(name) {
			return usage.Errorf("--%s cannot be used with --queue: objects in a queue are never given up, and --max-rate limits their rate", name)
		}
	}
	c := &q.config
	if c.Move, err = parseTake(q.take); err != nil {
		return err
	}
	if c.BackfillShare, err = parseShare(q.share); err != nil {
		return err
	}
	if c.MaxRate, err = parseSize("--max-rate", q.rate); err != nil {
		return err
	}
	if c.DailyBudget, err = parseSize("--daily-budget", q.perDay); err != nil {
		return err
	}
	for flag, patterns := range map[string][]string{"ignore": c.Ignore, "rewritten": c.Rewritten} {
		for _, pattern := range patterns {
			if _, err := filepath.Match(pattern, "x"); err != nil || strings.Contains(pattern, "/") {
				return usage.Errorf("--%s %q is not a pattern of names such as *.jpg", flag, pattern)
			}
		}
	}
	if cfg.Framing != wire.FramingLengthPrefixed {
		if cmd.Flags().Changed("heartbeat") && c.Heartbeat > 0 {
			return usage.Errorf("--heartbeat needs --framing length-prefixed: other framings have no space for it")
		}
		c.Heartbeat = 0
	}
	if c.LinkProbe != "" {
		if c.LinkProbe, err = stamp.Address(c.LinkProbe); err != nil {
			return usage.Errorf("--link-probe: %w", err)
		}
	}
	cfg.Queue = *c
	return c.check(cfg, len(cmd.Flags().Args()))
}

func (c *QueueConfig) check(cfg *Config, paths int) error {
	switch {
	case cfg.UDP:
		return usage.Errorf("--queue cannot be used over UDP: it keeps objects until they have a receipt, and UDP has none")
	case len(c.Watch) > 0 && (paths > 0 || cfg.Lines):
		return usage.Errorf("--watch sends the files of its folders: it cannot be combined with FILE arguments or --lines")
	case len(c.Rewritten) > 0 && len(c.Watch) == 0:
		return usage.Errorf("--rewritten is for files of watched folders: it needs --watch")
	case len(c.Rewritten) > 0 && cfg.HTTP != nil && cfg.HTTP.NameFrom == NameFromNothing:
		return usage.Errorf("--rewritten puts times into names, and with --name-from none objects have no names")
	case c.Heartbeat == 0 && (c.SampleCommand != "" || c.LinkProbe != ""):
		return usage.Errorf("--sample-command and --link-probe need heartbeats, which report their results: --framing length-prefixed, and --heartbeat not 0")
	case c.LinkProbe != "" && c.LinkProbeInterval < stamp.MinInterval:
		return usage.Errorf("--link-probe-interval must be at least %v", stamp.MinInterval)
	case c.Settle < 0 || c.ScanInterval <= 0 || c.Heartbeat < 0:
		return usage.Errorf("--settle, --scan-interval and --heartbeat are durations: --scan-interval 1s")
	}
	return nil
}

func parseTake(take string) (move bool, err error) {
	switch take {
	case takeKeep, takeMove:
		return take == takeMove, nil
	default:
		return false, usage.Errorf("--take %q is neither %s nor %s", take, takeKeep, takeMove)
	}
}

func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(number, 64)
	if percent {
		share /= 100
	}
	if err != nil || !(share >= 0 && share <= 1) {
		return 0, usage.Errorf("--backfill-share %q is not a share such as 20%%", text)
	}
	return share, nil
}

// minimum of --max-rate and --daily-budget, in bytes: a heartbeat still fits.
const minSize = 100

func parseSize(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n < minSize || n > 1<<50 {
		return 0, usage.Errorf("%s %q is not a number of bytes of at least %d, such as 25k or 1Mi", flag, text, minSize)
	}
	return int64(n), nil
}
