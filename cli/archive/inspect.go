// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/wire"
)

func inspectCommand(o *backend.Options) *cobra.Command {
	var s selection
	var format output.Format
	cmd := &cobra.Command{
		Use:   "inspect DIGEST|NAME",
		Short: "Show everything that the archive knows of an object",
		Long: `Shows what the archive knows of an object: which instrument sent it, from where and
when, which gateway received it, its path and versions, its state and who changed
that, its duplicates, and where its bytes lie. It is named by its SHA-256 or the first
eight digits or more of that, its path, the name that its sender gave, or its key.

All lists of the archive are read: --instrument and --since, --until (days of receipt)
make that less.`,
		Example: `  substorm archive inspect 3fa9c0d2e1b45a67
  substorm archive inspect gill/2026/11/21/gill_20261121_120003.jpg --instrument allsky-1
  substorm archive inspect 3fa9c0d2 --day today -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return backend.WithStore(cmd.Context(), *o, func(b *backend.Backend, store objectstore.Store) error {
				s.shown = progress.Start(cmd.ErrOrStderr(), false, nil)
				found, err := Inspect(cmd.Context(), store, b.Code, args[0], &s)
				s.shown.Stop()
				if err != nil {
					return err
				}
				return output.Each(cmd.OutOrStdout(), format, found, func(w io.Writer) { printKnown(w, found) })
			})
		},
	}
	s.addFlags(cmd)
	format.Add(cmd, "one object per line")
	return cmd
}

// Known is what is known of one object.
type Known struct {
	Instrument string   `json:"instrument"`
	Day        wire.Day `json:"day"`
	// Path is below the instrument's.
	Path   string      `json:"path"`
	Record wire.Record `json:"record"`
	// Versions are all of its name, this one included, by their IDs, the first one first.
	Versions []KnownVersion `json:"versions,omitempty"`
	// Duplicates are those that had the same bytes.
	Duplicates []KnownDuplicate `json:"duplicates,omitempty"`
	// Bytes says whether they are where the record says; absent of one whose bytes are
	// taken out.
	Bytes *KnownBytes `json:"bytes,omitempty"`
}

// KnownVersion is one object that has, or had, a name.
type KnownVersion struct {
	Version int         `json:"version"`
	ID      string      `json:"id"`
	Digest  wire.Digest `json:"sha256"`
	State   wire.State  `json:"state"`
}

// KnownDuplicate is a duplicate of an object.
type KnownDuplicate struct {
	ID         string `json:"id"`
	ReceivedAt string `json:"receivedAt"`
	Source     string `json:"source,omitempty"`
	Gateway    string `json:"gateway"`
}

// KnownBytes says where an object's bytes lie.
type KnownBytes struct {
	Key    string `json:"key"`
	Offset int64  `json:"offset,omitempty"`
	Length int64  `json:"length,omitempty"`
	// There: the store has that key, and it is large enough.
	There bool `json:"there"`
}

// anyDigest is what may be the beginning of one.
var anyDigest = regexp.MustCompile(`^[0-9a-fA-F]{8,64}$`)

// Inspect finds all objects that a digest or a name means, the last received first. It returns an error if there is none.
func Inspect(ctx context.Context, store objectstore.Store, site, name string, s *selection) ([]Known, error) {
	digest := ""
	if anyDigest.MatchString(name) {
		digest = strings.ToLower(name)
	}
	var found []Known
	duplicateOf := ""
	for n, err := range s.records(ctx, store, site) {
		switch {
		case err != nil:
			return nil, err
		case !matchesName(&n.Record, n.Instrument, digest, name):
		case n.State == wire.StateDuplicate:
			duplicateOf = n.DuplicateOf
		default:
			found = append(found, Known{Instrument: n.Instrument, Day: wire.DayOf(n.ReceivedAt), Path: n.Published(), Record: n.Record})
		}
	}
	switch {
	case len(found) == 0 && duplicateOf != "":
		return nil, fmt.Errorf("%q was marked as a duplicate of %s: substorm archive inspect %s", name, duplicateOf, duplicateOf)
	case len(found) == 0:
		return nil, fmt.Errorf("the archive of site %s lists nothing under %q: neither a digest, a path, a sender's name nor a key; what is new is listed within a minute", site, name)
	}
	if err := related(ctx, store, site, s, found); err != nil {
		return nil, err
	}
	for i := range found {
		var err error
		if found[i].Bytes, err = bytesOf(ctx, store, &found[i].Record); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(found, func(a, b Known) int { return b.Record.ReceivedAt.Compare(a.Record.ReceivedAt) })
	return found, nil
}

// related reads the other versions of what has a name, which may be of any day, and the
// duplicates.
func related(ctx context.Context, store objectstore.Store, site string, s *selection, found []Known) error {
	again := &selection{day: s.day, since: s.since, until: s.until, now: s.now, shown: s.shown}
	byID, byName := map[string]*Known{}, map[string][]*Known{}
	for i := range found {
		k := &found[i]
		again.instruments = append(again.instruments, k.Instrument)
		byID[k.Record.ID] = k
		if k.Record.Name != "" {
			again.day, again.since, again.until = "", "", ""
			name := k.Instrument + "/" + k.Record.Name
			byName[name] = append(byName[name], k)
		}
	}
	for n, err := range again.records(ctx, store, site) {
		if err != nil {
			return err
		}
		if n.State == wire.StateDuplicate {
			if k := byID[n.DuplicateOf]; k != nil {
				k.Duplicates = append(k.Duplicates, KnownDuplicate{n.ID, wire.FormatTime(n.ReceivedAt), n.Source, n.Gateway})
			}
			continue
		}
		for _, k := range byName[n.Instrument+"/"+n.Name] {
			k.Versions = append(k.Versions, KnownVersion{max(1, n.Version), n.ID, n.Digest, n.Outcome()})
		}
	}
	for i := range found {
		slices.SortFunc(found[i].Versions, func(a, b KnownVersion) int { return a.Version - b.Version })
	}
	return nil
}

// matchesName says whether a record is what was named.
func matchesName(r *wire.Record, instrument, digest, name string) bool {
	if digest != "" && strings.HasPrefix(r.Digest.String(), digest) {
		return true
	}
	path := r.Published()
	return name == r.ID || name == r.Key || name == r.Name || name == path || name == instrument+"/"+path
}

// bytesOf looks whether an object's bytes are there.
func bytesOf(ctx context.Context, store objectstore.Store, r *wire.Record) (*KnownBytes, error) {
	if r.State == wire.StatePurged {
		return nil, nil
	}
	b := &KnownBytes{Key: r.Key, Offset: r.Offset, Length: r.Length}
	info, err := store.Head(ctx, r.Key)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return b, nil
	case err != nil:
		return nil, err
	case r.InPack():
		b.There = info.Size >= r.Offset+r.Length
	default:
		b.There = info.Size == r.Size
	}
	return b, nil
}

func printKnown(w io.Writer, found []Known) {
	for i := range found {
		if i > 0 {
			fmt.Fprintln(w)
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		found[i].print(func(what, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", what, fmt.Sprintf(format, args...)) })
		_ = t.Flush()
	}
}

// print says what is known, a line each.
func (k *Known) print(say func(what, format string, args ...any)) {
	r := &k.Record
	say("sha-256", "%s", r.Digest)
	say("instrument", "%s", k.Instrument)
	say("path", "%s", k.Path)
	if r.Name != "" {
		say("name", "%s", r.Name)
	}
	k.printState(say)
	say("size", "%d bytes (%s), %s", r.Size, humanize.IBytes(uint64(r.Size)), cmp.Or(r.MediaType, "-"))
	if r.Looks != "" {
		say("looks like", "%s: its first bytes contradict the declared media type", r.Looks)
	}
	if r.Segment != nil {
		say("segment", "%d datagrams of channel %s, in %d messages", r.Segment.Datagrams, r.Segment.Channel, r.Segment.Messages)
	}
	from, to, doubted := r.Told()
	if from != nil {
		say("observed", "%s to %s, by %s", wire.FormatTime(*from), wire.FormatTime(*to), r.TimeSource)
	}
	if doubted != nil {
		say("doubted", "%s to %s: it tells this time, which lies too far from the receipt to be believed", wire.FormatTime(doubted.From), wire.FormatTime(doubted.To))
	}
	say("received", "%s, listed under %s", wire.FormatTime(r.ReceivedAt), k.Day)
	if r.Backfill {
		say("backfill", "it came later than cadence.lateAfter after it was observed")
	}
	say("from", "%s", cmp.Or(r.Source, "-"))
	gateway := fmt.Sprintf("%s, its incarnation %s", r.Gateway, cmp.Or(r.Incarnation, "-"))
	if r.Port > 0 {
		gateway += fmt.Sprintf(", port %d", r.Port)
	}
	if r.BroughtBy != "" {
		gateway += ", stored by " + r.BroughtBy + " from its copy"
	}
	say("gateway", "%s", gateway)
	if r.Completeness != "" {
		say("complete", "%s", r.Completeness)
	}
	for _, v := range k.Versions {
		say("version", "%d: sha-256 %s, %s, %s", v.Version, v.Digest, v.State, v.ID)
	}
	for _, again := range k.Duplicates {
		say("duplicate", "received %s from %s by %s, a duplicate: %s", again.ReceivedAt, cmp.Or(again.Source, "-"), again.Gateway, again.ID)
	}
	k.printBytes(say)
	say("id", "%s", r.ID)
}

func (k *Known) printState(say func(what, format string, args ...any)) {
	r := &k.Record
	said := string(r.Outcome())
	if r.PurgedAt != nil {
		said += " at " + wire.FormatTime(*r.PurgedAt)
	} else if r.RetractedAt != nil && r.State == wire.StateRetracted {
		said += " at " + wire.FormatTime(*r.RetractedAt)
	}
	if r.ChangedBy != "" {
		said += " by " + r.ChangedBy
	}
	if r.Reason != "" {
		said += ": " + r.Reason
	}
	say("state", "%s", said)
	if r.Supersedes != "" {
		say("replaces", "%s", r.Supersedes)
	}
}

func (k *Known) printBytes(say func(what, format string, args ...any)) {
	b := k.Bytes
	switch {
	case b == nil:
		say("bytes", "none: they were taken out of the archive")
	case !b.There:
		say("bytes", "MISSING: they should be in %s: substorm archive verify", b.Key)
	case b.Length > 0:
		say("bytes", "%s, %d bytes from %d on", b.Key, b.Length, b.Offset)
	default:
		say("bytes", "%s", b.Key)
	}
}
