// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

// abandonment is one run of the command.
type abandonment struct {
	pod               string
	yes, deleteVolume bool

	in       io.Reader
	out      io.Writer
	notes    io.Writer
	shown    *progress.Progress
	site     string
	store    objectstore.Store
	ledger   jetstream.KeyValue
	reports  jetstream.KeyValue
	js       jetstream.JetStream
	volume   func(context.Context) error
	ledgerAt map[string]uint64 // revisions of entries
}

func abandonCommand(o *backend.Options) *cobra.Command {
	a := &abandonment{}
	cmd := &cobra.Command{
		Use:   "abandon POD|POD_VOLUME",
		Short: "Give up the spool of a pod that will never return, and close its ledger",
		Long: `Says that the volume of a gateway pod is lost with what was in its spool. What the
pod had receipted and is not in the archive is lost: the ledger names it, with the
cause SpoolAbandoned, and closes. What other pods have copies of (acknowledge:
Replicated) is stored by them, and is not lost; where they are not done yet
the command says so and does nothing.

A pod that was made anew on another volume reports under its name, and what the earlier
volume holds stands beside it, as POD_VOLUME: that is given up in the same way, and the
pod and its volume are left alone.

A pod that still reports is never given up: it drains its spool itself.
Should the volume turn up later after all, start the pod on it: what is in the
spool drains to the store, and the pod makes its columns of the ledger exact again.`,
		Example: `  substorm spool ls
  substorm spool abandon north-1
  substorm spool abandon north-1 --yes --delete-volume
  substorm spool abandon north-1_0a1b2c3d`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.pod, a.in, a.out, a.notes = args[0], cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			if pod, volume, earlier := wire.ParseVolumeReporter(a.pod); earlier && a.deleteVolume {
				return usage.Errorf("%s is volume %s, on which pod %s ran before: PersistentVolumeClaim %s belongs to the pod of this name that runs now; "+
					"leave --delete-volume out, and delete the PersistentVolume of the earlier one by hand", a.pod, volume, pod, volumeClaim(pod))
			}
			if a.deleteVolume && o.Code != "" {
				return usage.Errorf("--delete-volume needs the cluster: leave --code out and name a Site with --site")
			}
			opts := *o
			opts.AbandonPod = a.pod
			return backend.With(cmd.Context(), opts, func(b *backend.Backend, store objectstore.Store, js jetstream.JetStream) error {
				a.site, a.store, a.js = b.Code, store, js
				a.volume = func(ctx context.Context) error { return b.DeleteVolumeClaim(ctx, volumeClaim(a.pod)) }
				return a.run(cmd.Context())
			})
		},
	}
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&a.deleteVolume, "delete-volume", false, "delete the pod's PersistentVolumeClaim, and the data on it, too")
	return cmd
}

func (a *abandonment) run(ctx context.Context) (err error) {
	if a.reports, err = a.js.KeyValue(ctx, wire.StatusBucket(a.site)); err != nil {
		return fmt.Errorf("bucket %s: %w", wire.StatusBucket(a.site), err)
	}
	if a.ledger, err = a.js.KeyValue(ctx, wire.LedgerBucket(a.site)); err != nil {
		return fmt.Errorf("bucket %s: %w", wire.LedgerBucket(a.site), err)
	}
	spool, err := a.find(ctx)
	if err != nil {
		return err
	}
	a.shown = progress.Start(a.notes, false, nil)
	c, err := a.plan(ctx, spool)
	a.shown.Stop() // what follows asks
	if err != nil {
		return err
	}
	if err := a.confirm(spool, c); err != nil {
		return err
	}
	return a.carryOut(ctx, spool, c)
}

// volumeClaim is the name of the claim that a StatefulSet makes for a pod.
func volumeClaim(pod string) string { return "data-" + pod }

// find returns the pod's spool, if it may be given up.
func (a *abandonment) find(ctx context.Context) (Spool, error) {
	spools, err := Read(ctx, a.js, a.site, time.Now())
	if err != nil {
		return Spool{}, err
	}
	i := slices.IndexFunc(spools, func(s Spool) bool { return s.Pod == a.pod })
	if i < 0 {
		var names []string
		for _, s := range spools {
			names = append(names, s.Pod)
		}
		return Spool{}, fmt.Errorf("no gateway pod %q has reported, or it was given up before; there are: %s", a.pod, strings.Join(names, ", "))
	}
	if s := spools[i]; !s.Silent {
		return Spool{}, fmt.Errorf("pod %s reported %s ago: it is not lost, and drains its spool itself; stop it first if its volume is to be given up",
			a.pod, age(time.Since(s.ReportedAt)))
	}
	for _, s := range spools {
		for _, c := range s.Copies {
			if c.Owner == a.pod && c.Objects > 0 && !s.Silent {
				return Spool{}, fmt.Errorf("pod %s has copies of %d objects of %s and is about to drain them: "+
					"wait until `substorm spool ls` shows none", s.Pod, c.Objects, a.pod)
			}
		}
	}
	return spools[i], nil
}

// plan reads what the pod received, and what of that the archive holds.
func (a *abandonment) plan(ctx context.Context, s Spool) (closing, error) {
	a.ledgerAt = map[string]uint64{}
	received, err := a.entries(ctx, wire.LedgerKey("*", "*", wire.StepReceived, a.pod))
	if err != nil {
		return closing{}, err
	}
	announced, err := a.entries(ctx, wire.LedgerKey("*", "*", wire.StepAnnounced, wire.ArchivistWriter))
	if err != nil {
		return closing{}, err
	}
	r := report{count: count{uint64(s.Objects), uint64(s.Bytes)}, day: wire.DayOf(s.ReportedAt), incarnation: s.incarnation}
	r.first = r.day
	if s.Oldest != nil {
		r.first = min(r.first, wire.DayOf(*s.Oldest))
	}
	stored := map[instrumentDay]archived{}
	for instrument, err := range manifest.Instruments(ctx, a.store, a.site) {
		if err != nil {
			return closing{}, err
		}
		for day, err := range manifest.Days(ctx, a.store, a.site, instrument) {
			if err != nil {
				return closing{}, err
			}
			at := instrumentDay{instrument, day}
			if day < r.first && !isOpen(received[at], announced[at]) {
				delete(received, at)
				continue
			}
			if stored[at], err = a.archived(ctx, at); err != nil {
				return closing{}, err
			}
			a.shown.Set(0, 0, "%d instrument days read, now %s of %s", len(stored), day, instrument)
		}
	}
	return closeLedger(received, stored, r), nil
}

// entries reads entries of the ledger, and notes their revisions.
func (a *abandonment) entries(ctx context.Context, keys string) (map[instrumentDay]wire.LedgerEntry, error) {
	all := map[instrumentDay]wire.LedgerEntry{}
	err := backend.Entries(ctx, a.js, a.ledger.Bucket(), keys, func(e backend.Entry) error {
		instrument, day, _, _, err := wire.ParseLedgerKey(e.Key)
		if err != nil {
			return err
		}
		entry, err := wire.Decode[wire.LedgerEntry](e.Data)
		if err != nil {
			return fmt.Errorf("ledger entry %s: %w", e.Key, err)
		}
		all[instrumentDay{instrument, day}] = entry
		a.ledgerAt[e.Key] = e.Sequence
		return nil
	})
	return all, err
}

// isOpen says whether something was received that is not announced, as far as the ledger says.
func isOpen(received, announced wire.LedgerEntry) bool {
	own := map[string]wire.Totals{}
	for incarnation := range received.Incarnations {
		if t, listed := announced.Incarnations[incarnation]; listed {
			own[incarnation] = t
		}
	}
	lost, _ := missing(received, own)
	return lost.Objects > 0
}

// archived sums up the objects of a day that the manifests list as received by the pod.
func (a *abandonment) archived(ctx context.Context, at instrumentDay) (stored archived, err error) {
	var listed manifest.Columns
	for r, err := range manifest.Records(ctx, a.store, a.site, at.Instrument, at.Day) {
		if err != nil {
			return stored, fmt.Errorf("manifest of %s, %s: %w", at.Instrument, at.Day, err)
		}
		if r.Gateway != a.pod || r.Segment != nil {
			continue
		}
		listed.Add(&r)
		if r.BroughtBy != "" {
			stored.brought = stored.brought.plus(count{1, uint64(r.Size)})
		}
	}
	stored.announced = listed.Announced
	return stored, nil
}

var errNotConfirmed = errors.New("nothing was changed")

// confirm says what will be lost, and asks.
func (a *abandonment) confirm(s Spool, c closing) error {
	if a.describe(s, c); a.yes {
		return nil
	}
	fmt.Fprintf(a.out, "This closes the ledger for good. Type the pod's name to go on: ")
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if strings.TrimSpace(line) == a.pod {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("%w: %q is not the pod's name (--yes does not ask)", errNotConfirmed, strings.TrimSpace(line))
}

func (a *abandonment) describe(s Spool, c closing) {
	fmt.Fprintf(a.out, "Pod %s on node %s has been silent for %s.\n", s.Pod, s.Node, age(time.Since(s.ReportedAt)))
	fmt.Fprintf(a.out, "Its last report: %d objects, %s in its spool.\n", s.Objects, humanize.IBytes(uint64(s.Bytes)))
	if c.archived.Objects > 0 {
		fmt.Fprintf(a.out, "Archived by other pods, from copies: %d objects, %s.\n", c.archived.Objects, humanize.IBytes(c.archived.Bytes))
	}
	if len(c.lost) == 0 {
		fmt.Fprintln(a.out, "Nothing is known to be lost.")
		return
	}
	t := output.Columns(a.out, "\nINSTRUMENT\tDAY\tLOST\tBYTES")
	for _, l := range c.lost {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", l.Instrument, l.Day, l.Objects, humanize.IBytes(l.Bytes))
	}
	fmt.Fprintln(t)
	_ = t.Flush()
}

// carryOut writes the ledger, and then removes the report, which lets the pool continue without the pod. Entries that were written before
// it failed are not written again.
func (a *abandonment) carryOut(ctx context.Context, s Spool, c closing) error {
	for at, entry := range c.changed {
		if err := a.write(ctx, wire.LedgerKey(at.Instrument, at.Day, wire.StepReceived, a.pod), entry); err != nil {
			return err
		}
	}
	err := a.reports.Delete(ctx, wire.GatewayStatusKey(a.pod), jetstream.LastRevision(s.revision))
	if err != nil {
		return fmt.Errorf("remove the report of %s: %w: has it just come back? See substorm spool ls", a.pod, err)
	}
	lost := c.total()
	fmt.Fprintf(a.out, "Given up: %d objects, %s, are lost with the spool of %s.\n", lost.Objects, humanize.IBytes(lost.Bytes), a.pod)
	claim := volumeClaim(a.pod)
	if _, _, earlier := wire.ParseVolumeReporter(a.pod); earlier {
		fmt.Fprintln(a.out, "The pod that runs now, and its volume, stay as they are.")
		return nil
	}
	if !a.deleteVolume {
		fmt.Fprintf(a.out, "Its volume stays: PersistentVolumeClaim %s. Where its node is gone for good, --delete-volume lets the pod start elsewhere.\n", claim)
		return nil
	}
	if err := a.volume(ctx); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "PersistentVolumeClaim %s is deleted; it goes once no pod uses it: on a node that is lost, "+
		"kubectl delete pod %s --grace-period=0 --force\n", claim, a.pod)
	return nil
}

// write writes an entry that is as it was read.
func (a *abandonment) write(ctx context.Context, key string, entry wire.LedgerEntry) error {
	value, err := wire.Encode(entry)
	if err != nil {
		return err
	}
	if revision, exists := a.ledgerAt[key]; exists {
		_, err = a.ledger.Update(ctx, key, value, revision)
	} else {
		_, err = a.ledger.Create(ctx, key, value)
	}
	if err != nil {
		return fmt.Errorf("write %s of the ledger: %w: run the command again", key, err)
	}
	return nil
}
