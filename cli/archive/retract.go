// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// shownTargets of what is retracted are printed.
	shownTargets = 20
	// defaultPatience is how long it is waited for: the archivist decides within seconds,
	// and what lies beside purged bytes is moved out of the way after that.
	defaultPatience = 5 * time.Minute
)

// verb is one of what can be done to objects.
type verb struct {
	name   string
	action wire.Action
	done   string
}

var (
	retract = verb{"retract", wire.ActionRetract, "retracted"}
	restore = verb{"restore", wire.ActionRestore, "restored"}
	purge   = verb{"purge", wire.ActionPurge, "purged"}
)

func retractCommand(o *backend.Options) *cobra.Command {
	return changeCommand(o, retract, "Take objects out of public sight; their bytes stay",
		`The objects keep their bytes and their places, and are not given out any more:
whoever asks for one is answered 410 Gone, with the reason. substorm archive restore
undoes it.`)
}

func restoreCommand(o *backend.Options) *cobra.Command {
	return changeCommand(o, restore, "Undo a retraction", `The objects are given out again as before.`)
}

func purgeCommand(o *backend.Options) *cobra.Command {
	return changeCommand(o, purge, "Remove the bytes of objects for good",
		`The bytes are removed wherever the archive has them, duplicates that wait in packs and
what a compaction left included; a pack is written anew without them. What is known
of the objects stays, with who purged them when and why. There is no way back: the
command asks before it begins, unless --yes is given.`)
}

// request is one run of a command.
type request struct {
	verb       verb
	instrument string
	choice     choice
	reason, by string
	yes, dry   bool
	format     output.Format
	patience   time.Duration

	in         io.Reader
	out, notes io.Writer
	site       string
	store      objectstore.Store
	js         jetstream.JetStream
}

func changeCommand(o *backend.Options, v verb, short, long string) *cobra.Command {
	r := &request{verb: v}
	cmd := &cobra.Command{
		Use:   v.name + " INSTRUMENT [PATH | DIGEST | KEY] --reason WHY",
		Short: short,
		Long: long + `

A path is the one under which an object is published, and means its current version;
--version names another, --all-versions means all. A path that ends with a slash
means all that is published below it. A SHA-256, or its first eight or more digits,
means all objects of the instrument that have it. --day, --since and --until narrow down
where is looked, by days of receipt.

--received, --observed, --from and --match choose objects by when they came, when they
were observed, where they came from, and their names; what several of them say, and the
path, holds together. Without a path all versions are meant. --dry-run counts them.

The command publishes requests. The archivist of the Site decides about them and changes
the manifests within seconds; the command waits for its decisions (--wait), prints the
refusals with their reasons, and ends with exit code 1 if there is one. Under legal hold
nothing is retracted or purged. A request stays in the stream while no archivist runs.`,
		Example: fmt.Sprintf(`  substorm archive %[1]s allsky-1 2026/11/21/rank_235958.jpg --reason "a lamp was on"
  substorm archive %[1]s allsky-1 2026/11/21/ --reason "the dome was closed" --dry-run
  substorm archive %[1]s allsky-1 --received 2026-11-21T06:32:20..2026-11-21T06:32:30 --from 192.0.2.7 --match '*.blk' --reason "a wrong folder"`, v.name),
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.name(args); err != nil {
				return err
			}
			r.in, r.out, r.notes = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := r.check(); err != nil {
				return err
			}
			opts := *o
			opts.ChangesOf = r.instrument
			return backend.With(cmd.Context(), opts, func(b *backend.Backend, store objectstore.Store, js jetstream.JetStream) error {
				r.site, r.store, r.js = b.Code, store, js
				return r.run(cmd.Context())
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.reason, "reason", "", "why, in words that every reader is shown (required)")
	f.StringVar(&r.by, "by", whoAmI(), "who asks; it stays with the object (default: the user, at this host)")
	f.Lookup("by").DefValue = "" // the reference is the same on each host
	f.IntVar(&r.choice.version, "version", 0, "this version of a name")
	f.BoolVar(&r.choice.allVersions, "all-versions", false, "all versions of a name")
	f.BoolVar(&r.dry, "dry-run", false, "show what would be done, and do nothing")
	f.DurationVar(&r.patience, "wait", defaultPatience, "how long to wait for decisions, and until purged bytes are gone; 0 does not wait")
	r.choice.addDays(f)
	r.choice.narrowing.add(f)
	r.format.Add(cmd, "one record per line")
	if v == purge {
		f.BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	}
	return cmd
}

// name reads the arguments: the instrument, and which of its objects.
func (r *request) name(args []string) error {
	switch {
	case len(args) == 0:
		return usage.Errorf("which objects? substorm archive %s INSTRUMENT PATH, or INSTRUMENT with --received, --observed, --from or --match", r.verb.name)
	case len(args) > 2:
		return usage.Errorf("%q is one too many: name the instrument and one path, digest or key; a path that ends with a slash, and --match, mean several objects", args[2])
	case len(args) == 1 && !r.choice.narrowing.isSet():
		return usage.Errorf("which objects of %s? name a path, a digest or a key, or choose by --received, --observed, --from or --match", args[0])
	}
	r.instrument = args[0]
	if len(args) == 2 {
		if r.choice.what = args[1]; args[1] == "" {
			return usage.Errorf("an empty path means nothing: name a path, a digest or a key")
		}
	}
	return nil
}

// whoAmI names who runs the command.
func whoAmI() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

func (r *request) check() error {
	if r.reason == "" {
		return usage.Errorf("--reason is missing: readers who request the object see it")
	}
	for name, text := range map[string]string{"--reason": r.reason, "--by": r.by} {
		if wire.CheckReason(text) != nil {
			return usage.Errorf("%s is one line of at most %d bytes", name, wire.MaxReason)
		}
	}
	if r.choice.version != 0 && r.choice.allVersions || r.choice.version < 0 {
		return usage.Errorf("--version names one version, from 1 on, --all-versions means all: give one of them")
	}
	r.choice.instruments = []string{r.instrument}
	if err := r.choice.narrowing.parse(); err != nil {
		return err
	}
	r.choice.narrowing.narrowDays(&r.choice.selection)
	_, err := r.choice.days()
	return err
}

func (r *request) run(ctx context.Context) error {
	begun := time.Now()
	r.choice.shown = progress.Start(r.notes, false, nil)
	targets, err := r.find(ctx)
	r.choice.shown.Stop() // show and confirm print
	if r.choice.mayMiss(begun) {
		since := begun.Add(-listedWithin).UTC().Format("15:04:05Z")
		defer func() {
			fmt.Fprintf(r.notes, "Objects that were received since %s may not be listed yet, and those that wait in spools of gateways are not: "+
				"run the command again in two minutes if some of them are meant.\n", since)
		}()
	}
	if err != nil {
		return err
	}
	if err := r.show(targets); err != nil || r.dry {
		return err
	}
	if err := r.confirm(targets); err != nil {
		return err
	}
	r.choice.shown = progress.Start(r.notes, false, nil)
	defer r.choice.shown.Stop()
	r.notes = r.choice.shown.Above(r.notes)
	asked, err := r.ask(ctx, targets)
	if err != nil {
		return err
	}
	if r.patience <= 0 {
		fmt.Fprintf(r.notes, "%s of instrument %s: requested; the archivist decides\n", sum(targets), r.instrument)
		return nil
	}
	return r.await(ctx, asked)
}

// show prints what is meant.
func (r *request) show(targets []wire.Record) error {
	err := output.Each(r.out, r.format, targets, func(w io.Writer) { table(w, targets) })
	if err == nil && r.dry {
		fmt.Fprintf(r.notes, "%s would be %s\n", sum(targets), r.verb.done)
	}
	return err
}

func table(out io.Writer, targets []wire.Record) {
	w := output.Columns(out, "PATH\tVERSION\tRECEIVED\tSIZE\tSHA-256\tSTATE")
	for _, t := range targets[:min(len(targets), shownTargets)] {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%.12s\t%s\n", t.Published(), max(t.Version, 1), t.ReceivedAt.UTC().Format("2006-01-02 15:04:05Z"),
			humanize.IBytes(uint64(t.Size)), t.Digest, t.State)
	}
	_ = w.Flush()
	if more := len(targets) - shownTargets; more > 0 {
		fmt.Fprintf(out, "… and %d more\n", more)
	}
}

func sum(targets []wire.Record) string {
	var bytes int64
	for i := range targets {
		bytes += targets[i].Size
	}
	noun := "objects"
	if len(targets) == 1 {
		noun = "object"
	}
	return fmt.Sprintf("%d %s, %s", len(targets), noun, humanize.IBytes(uint64(bytes)))
}

// confirm asks before bytes go for good.
func (r *request) confirm(targets []wire.Record) error {
	if r.verb != purge || r.yes {
		return nil
	}
	fmt.Fprintf(r.notes, "Purge %s of instrument %s for good? Type yes: ", sum(targets), r.instrument)
	answer, err := bufio.NewReader(r.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(answer) != "yes" {
		return errors.New("nothing is purged: it was not confirmed with yes (--yes does not ask)")
	}
	return nil
}
