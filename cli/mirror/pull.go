// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/pull"
)

// pullOptions are the flags of `mirror pull`.
type pullOptions struct {
	instruments             []string
	observed                string
	tokenFile               string
	ca, certificate, key    string
	prune, retractions      string
	safetyStop, connections int
	force, acceptLoss       bool
	quiet                   bool
}

func pullCommand() *cobra.Command {
	var o pullOptions
	cmd := &cobra.Command{
		Use:   "pull URL FOLDER",
		Short: "Copy what the archive behind a feed server holds into a folder, or what changed since",
		Long: `Copies the objects of an archive into a folder, as INSTRUMENT/PATH, each with the
time of its receipt. A later run asks for what changed since, and fetches that.
Each object is compared with its SHA-256, and has its name in the folder only
once all of it is there. A run that is interrupted at any point loses nothing:
the next one goes on.

What the other side retracts or purges is removed here too, and what expires
there stays (--retractions, --prune).`,
		Example: `  substorm mirror pull https://archive.example.org /data/thule
  substorm mirror pull https://archive.example.org /data/thule --instrument 'allsky-*' --observed 2026-11-01..2026-12-01
  substorm mirror pull https://archive.example.org /data/thule --token-file token --tls-ca ca.crt`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args[0], args[1], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.instruments, "instrument", nil, "names of Instruments, or patterns such as allsky-*; default: all that may be read")
	f.StringVar(&o.observed, "observed", "", "what was observed in this interval `A..B`, of which one end may be absent")
	f.StringVar(&o.tokenFile, "token-file", "", "file with the token of a reader")
	f.StringVar(&o.ca, "tls-ca", "", "file with the authorities whose certificates a server may show; default: those of the system")
	f.StringVar(&o.certificate, "tls-cert", "", "file with the certificate to show, and with --tls-key its key")
	f.StringVar(&o.key, "tls-key", "", "file with the key of --tls-cert")
	f.StringVar(&o.prune, "prune", string(plan.PruneNever), "what becomes of objects that expired at the other side: Never (they stay), WhenExpired (they are removed)")
	usage.OneOf(cmd, "prune", plan.PruneNever, plan.PruneWhenExpired)
	f.StringVar(&o.retractions, "retractions", string(plan.RetractionsTombstone), "what becomes of objects that were retracted or purged: Tombstone (removed, the list says why), Ignore (kept)")
	usage.OneOf(cmd, "retractions", plan.RetractionsTombstone, plan.RetractionsIgnore)
	f.IntVar(&o.safetyStop, "safety-stop", 10, "remove nothing where a run would remove more than so many percent of the objects; 0: no stop")
	f.IntVar(&o.connections, "connections", pull.DefaultConnections, "connections at most")
	f.BoolVar(&o.force, "force", false, "compare all files, whatever earlier runs noted, and without a safety stop")
	f.BoolVar(&o.acceptLoss, "accept-loss", false, "with --force: forget the copies that are lost here and that the other side does not give any more")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "show no progress")
	return cmd
}

// run makes one run.
func (o *pullOptions) run(ctx context.Context, from, to string, out, messages io.Writer) error {
	cfg := pull.Config{Force: o.force, AcceptLoss: o.acceptLoss, Connections: o.connections, Progress: &pull.Progress{}}
	if err := o.choose(&cfg); err != nil {
		return err
	}
	var shown *progress.Progress
	client, err := o.client(from, cfg.Progress, oncePerReason(func(text string) { shown.Say("%s", text) }))
	if err != nil {
		return err
	}
	defer client.Close()
	cfg.Source = client
	if cfg.Folder, err = folder.Open(to); err != nil {
		return fmt.Errorf("folder %s: %w", to, err)
	}
	begun := time.Now()
	shown = progress.Start(messages, o.quiet, func() progress.State { return stateOf(cfg.Progress.Figures(), begun) })
	cfg.Logger = slog.New(slog.NewTextHandler(shown.Above(messages), &slog.HandlerOptions{Level: slog.LevelWarn}))
	err = pull.Run(ctx, cfg)
	shown.Stop()
	if !o.quiet {
		_, _ = fmt.Fprintln(out, summary(cfg.Progress.Figures(), time.Since(begun)))
	}
	if isInterrupted := ctx.Err(); isInterrupted != nil {
		err = isInterrupted
	}
	var stop *plan.SafetyStopError
	var refused *https.RefusedError
	if errors.As(err, &refused) && (refused.Status == 401 || refused.Status == 403) && o.tokenFile == "" {
		err = fmt.Errorf("%w (--token-file, --tls-cert)", err)
	} else if errors.As(err, &stop) {
		err = fmt.Errorf("folder %s: %w", to, err)
	}
	return errors.Join(err, cfg.Folder.Close())
}

// choose reads what is wanted and what is removed.
func (o *pullOptions) choose(cfg *pull.Config) (err error) {
	cfg.Policy = plan.Policy{Prune: plan.Prune(o.prune), Retractions: plan.Retractions(o.retractions), SafetyStop: o.safetyStop}
	switch {
	case cfg.Prune != plan.PruneNever && cfg.Prune != plan.PruneWhenExpired:
		return usage.Errorf("--prune %q is neither %s nor %s", o.prune, plan.PruneNever, plan.PruneWhenExpired)
	case cfg.Retractions != plan.RetractionsTombstone && cfg.Retractions != plan.RetractionsIgnore:
		return usage.Errorf("--retractions %q is neither %s nor %s", o.retractions, plan.RetractionsTombstone, plan.RetractionsIgnore)
	case o.safetyStop < 0 || o.safetyStop > 100:
		return usage.Errorf("--safety-stop %d is not a percentage: 0 to 100", o.safetyStop)
	case o.acceptLoss && !o.force:
		return usage.Errorf("--accept-loss goes with --force, which compares all files")
	case o.connections < 1 || o.connections > 256:
		return usage.Errorf("--connections %d: 1 to 256", o.connections)
	}
	if len(o.instruments) > 0 {
		for _, pattern := range o.instruments {
			if _, err := path.Match(pattern, ""); err != nil {
				return usage.Errorf("--instrument %q is not a pattern: %w", pattern, err)
			}
		}
		cfg.Instruments = o.instruments
	}
	if o.observed == "" {
		return nil
	}
	cfg.ObservedFrom, cfg.ObservedTo, err = parseObserved(o.observed)
	return err
}

// parseObserved reads A..B.
func parseObserved(text string) (from, to time.Time, err error) {
	a, b, ok := strings.Cut(text, "..")
	if !ok || a == "" && b == "" {
		return from, to, usage.Errorf("--observed %q: give A..B, as 2026-11-01..2026-12-01", text)
	}
	for _, bound := range []struct {
		text string
		to   *time.Time
	}{{a, &from}, {b, &to}} {
		if bound.text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339, bound.text)
		if err != nil {
			t, err = time.Parse(time.DateOnly, bound.text)
		}
		if err != nil {
			return from, to, usage.Errorf("--observed: %q is not a time: write 2026-11-01 or 2026-11-01T12:00:00Z", bound.text)
		}
		*bound.to = t.UTC()
	}
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		return from, to, usage.Errorf("--observed %q: the first time must be before the second", text)
	}
	return from, to, nil
}

// maxReasons is how many reasons are said: each URL may have one of its own.
const maxReasons = 10

// oncePerReason says why requests are made again, each reason once.
func oncePerReason(say func(string)) func(error, time.Duration) {
	var mu sync.Mutex
	said := map[string]bool{}
	return func(err error, after time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if reason := err.Error(); !said[reason] && len(said) < maxReasons {
			said[reason] = true
			say(fmt.Sprintf("%s: it is asked again, first after %v", reason, after.Round(100*time.Millisecond)))
		}
	}
}

// client connects to a feed server.
func (o *pullOptions) client(from string, p *pull.Progress, again func(error, time.Duration)) (*https.Client, error) {
	u, err := url.Parse(strings.TrimSuffix(from, "/"))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" {
		return nil, usage.Errorf("%q is not a URL of a feed server, such as https://archive.example.org", from)
	}
	cfg := https.Config{URL: u, Connections: o.connections, Agent: "substorm-mirror", Received: p.Receive, Again: again}
	if o.tokenFile != "" {
		if u.Scheme != "https" {
			return nil, usage.Errorf("a token needs https://: http:// would expose it to everyone on the path")
		}
		text, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		if cfg.Token = strings.TrimSpace(string(text)); cfg.Token == "" {
			return nil, fmt.Errorf("--token-file %s is empty", o.tokenFile)
		}
	}
	if (o.certificate == "") != (o.key == "") {
		return nil, usage.Errorf("--tls-cert and --tls-key go together")
	}
	if cfg.TLS, err = https.TLS(o.ca, o.certificate, o.key); err != nil {
		return nil, fmt.Errorf("--tls-…: %w", err)
	}
	return https.New(cfg), nil
}

// stateOf is what the bar shows.
func stateOf(f pull.Figures, begun time.Time) progress.State {
	rate := float64(f.Received) / max(time.Since(begun).Seconds(), 0.001)
	return progress.State{Done: f.Bytes, Total: f.OwedBytes, Text: fmt.Sprintf("%s of %s objects, %s of %s, %s/s",
		humanize.Comma(f.Objects), humanize.Comma(f.OwedObjects), humanize.IBytes(uint64(max(0, f.Bytes))), humanize.IBytes(uint64(max(0, f.OwedBytes))), humanize.IBytes(uint64(rate)))}
}

// summary is what a run came to.
func summary(f pull.Figures, took time.Duration) string {
	text := fmt.Sprintf("%s objects, %s in %s", humanize.Comma(f.Objects), humanize.IBytes(uint64(max(0, f.Bytes))), took.Round(10*time.Millisecond))
	if f.Removed > 0 {
		text += fmt.Sprintf("; %s removed", humanize.Comma(f.Removed))
	}
	if f.Failed > 0 {
		text += fmt.Sprintf("; %s could not be had", humanize.Comma(f.Failed))
	}
	if f.Unlisted > 0 {
		text += fmt.Sprintf("; %s here are not listed there any more", humanize.Comma(f.Unlisted))
	}
	if f.Kept > 0 {
		text += fmt.Sprintf("; %s retractions stand that are not listed there any more", humanize.Comma(f.Kept))
	}
	return text + fmt.Sprintf("; received %s", humanize.IBytes(uint64(f.Received)))
}
