// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// rebuildWriter stands in the headers of what a rebuild writes.
	rebuildWriter = "_rebuild"
	// fencedTries is how often a day is compared again because the archivist compacted it.
	fencedTries = 3
)

func rebuildCommand(o *backend.Options) *cobra.Command {
	var r rebuild
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Make manifests anew from what the objects in the bucket say themselves",
		Long: `Reads what every object in the bucket says of itself, and the changes that were
written down beside them, compares that with the manifests, and writes a new version
of each day whose manifest is lost, cannot be read, lacks objects or names places
where the bytes are not. Nothing that a readable manifest lists is taken away, and no
file is removed. Gateways may run meanwhile; what they stored in the last minutes is
left to them (--age).

--dry-run says what differs, and changes nothing:

  Unlisted    stored, and not listed
  Missing     listed, and not stored
  Moved       the bytes are not where the manifest says
  Unreadable  a file of the manifest cannot be read; or one of changes: then the day
              stays as it is, see substorm archive verify
  NoManifest  the Site's index or ledger knows objects of the day, and the bucket has no
              manifest of it: those that are stored are Unlisted too
  StaleIndex  the Site's index, which readers go by, names other files of a manifest than
              the bucket has: the archivist makes it anew
  Foreign     no object, pack, manifest or changes that can be read as such, in a place
              for them: it is left alone, see substorm archive verify
  Untold      what the manifest says of the object is written down nowhere else, so
              that it would be lost with the manifest. --tell writes it down: for
              archives of before there were changes`,
		Example: `  substorm archive rebuild --dry-run
  substorm archive rebuild --instrument allsky-1 --since 2026-11-01 --until 2026-11-30
  substorm archive rebuild --code demo --s3-endpoint http://127.0.0.1:9000 --s3-bucket archive --s3-credentials-dir ./keys`,
		Args: noNames,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if r.age < 0 {
				return usage.Errorf("--age %s: give a duration of 0 or more", r.age)
			}
			opened := *o
			opened.Rebuild = true
			return backend.WithStore(cmd.Context(), opened, func(b *backend.Backend, store objectstore.Store) error {
				defer r.open(cmd, b, store)()
				if b.KnowsJetStream() {
					js, err := b.JetStream(cmd.Context())
					if err != nil {
						return err
					}
					r.index = &index{js: js, site: b.Code}
				}
				return r.run(cmd.Context(), b)
			})
		},
	}
	r.addFlags(cmd, "leave what was stored more recently than this to the gateways")
	cmd.Flags().BoolVar(&r.dry, "dry-run", false, "say what differs and change nothing")
	cmd.Flags().BoolVar(&r.tell, "tell", false, "write down beside the data what only manifests say")
	return cmd
}

// rebuild is what `archive rebuild` does.
type rebuild struct {
	survey
	dry, tell bool
	index     *index // nil where JetStream is not known
}

// counts are what a rebuild did, or would do.
type counts struct {
	objects, lists, written, told int
	kinds                         map[bucket.DifferenceKind]int
}

func (r *rebuild) run(ctx context.Context, b *backend.Backend) error {
	c := counts{kinds: map[bucket.DifferenceKind]int{}}
	err := r.compareIndex(ctx, b, func(kind bucket.DifferenceKind, of bucket.List, id, detail string) error {
		c.kinds[kind]++
		return r.print(kind, of, id, detail)
	})
	if err != nil {
		return err
	}
	err = r.each(ctx, func(key string, err error) error {
		c.kinds[bucket.Foreign]++
		return r.print(bucket.Foreign, bucket.List{Instrument: nowhere, Day: nowhere}, key, err.Error())
	}, func(ctx context.Context, _ bucket.List, compare comparison) error {
		return r.list(ctx, compare, &c)
	})
	if err != nil {
		return err
	}
	if c.written > 0 || !r.dry && c.kinds[noManifest]+c.kinds[staleIndex] > 0 {
		if err := r.index.forget(ctx, r.notes); err != nil {
			return err
		}
	}
	r.report(c)
	return nil
}

// list rebuilds one list, if it must be rebuilt.
func (r *rebuild) list(ctx context.Context, compare comparison, c *counts) error {
	for try := 1; ; try++ {
		err := r.repairList(ctx, compare, c)
		if !errors.Is(err, manifest.ErrFenced) || try == fencedTries {
			return err
		}
	}
}

func (r *rebuild) repairList(ctx context.Context, compare comparison, c *counts) error {
	p, err := compare(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	header := wire.ManifestHeader{Site: r.site, Writer: rebuildWriter, Incarnation: wire.FormatTime(time.Now().UTC())}
	if r.tell && !r.dry {
		told, err := p.Tell(ctx, r.store, header)
		if err != nil {
			return err
		}
		c.told += told
	}
	if p.Changes() && !r.dry {
		version, err := r.nextVersion(ctx, p.List)
		if err == nil {
			err = p.Apply(ctx, r.store, header, r.scratch, version)
		}
		if err != nil {
			return err
		}
		c.written++
	}
	c.lists++
	c.objects += p.Said
	for _, d := range p.Differences {
		c.kinds[d.Kind]++
		if r.dry || d.Kind != bucket.Untold {
			if err := r.print(d.Kind, d.List, d.ID, describeDifference(d)); err != nil {
				return err
			}
		}
	}
	return nil
}

// describeDifference describes a difference.
func describeDifference(d bucket.Difference) string {
	switch {
	case d.Kind == bucket.Unreadable && isOfChanges(d.ID):
		return "changes: nobody knows what they retracted, and the day stays as it is"
	case d.Kind == bucket.Moved:
		return fmt.Sprintf("listed at %s, lies at %s", spot(d.Record), spot(*d.Bucket))
	case d.Kind == bucket.Untold && d.Bucket == nil:
		return fmt.Sprintf("listed as %s", d.State)
	case d.Kind == bucket.Untold && d.State != d.Bucket.State:
		return fmt.Sprintf("listed as %s, says %s", d.State, d.Bucket.State)
	case d.Kind == bucket.Untold && d.Path != d.Bucket.Path:
		return fmt.Sprintf("listed under %q, says %q", d.Path, d.Bucket.Path)
	}
	return ""
}

func isOfChanges(key string) bool {
	_, err := wire.ParseChangesKey(key)
	return err == nil
}

func spot(r wire.Record) string {
	if r.InPack() {
		return fmt.Sprintf("%s from byte %d", r.Key, r.Offset)
	}
	return r.Key
}

func (r *rebuild) report(c counts) {
	fmt.Fprintf(r.notes, "%d objects of %d instrument days: %d unlisted, %d missing, %d moved, %d files unreadable, %d untold, %d foreign, "+
		"%d days without a manifest, %d days of which the index is stale\n",
		c.objects, c.lists, c.kinds[bucket.Unlisted], c.kinds[bucket.Missing], c.kinds[bucket.Moved], c.kinds[bucket.Unreadable],
		c.kinds[bucket.Untold], c.kinds[bucket.Foreign], c.kinds[noManifest], c.kinds[staleIndex])
	switch {
	case r.dry:
		fmt.Fprintln(r.notes, "nothing was changed")
	case r.tell:
		fmt.Fprintf(r.notes, "%d days were made anew, %d objects written down beside the data\n", c.written, c.told)
	default:
		fmt.Fprintf(r.notes, "%d days were made anew\n", c.written)
	}
}

// nextVersion returns the least number that a new version of a day may have: greater
// than what the index knows, for by the number it tells files apart, and the files
// that it knows may be gone.
func (r *rebuild) nextVersion(ctx context.Context, of bucket.List) (int, error) {
	next := 1
	learn := func(days []wire.RootDay) {
		for _, d := range days {
			if d.Day == of.Day {
				next = max(next, d.Version+1)
			}
		}
	}
	for info, err := range r.store.List(ctx, wire.RootPrefix(r.site, of.Instrument), "") {
		if err != nil {
			return 0, err
		}
		_, _, number, err := wire.ParseRootKey(info.Key)
		if err != nil {
			continue
		}
		root, err := manifest.ReadRoot(ctx, r.store, r.site, of.Instrument, number)
		if errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, wire.ErrMalformed) {
			continue
		}
		if err != nil {
			return 0, err
		}
		learn(root.Days)
	}
	entry, err := r.index.entry(ctx, of.Instrument)
	learn(entry.Open)
	return next, err
}

// index is the Site's list of days, which readers go by.
type index struct {
	js   jetstream.JetStream
	site string
}

// entry returns what the index knows of an instrument; an empty entry if it knows nothing.
func (i *index) entry(ctx context.Context, instrument string) (wire.IndexEntry, error) {
	if i == nil {
		return wire.IndexEntry{}, nil
	}
	kv, err := i.js.KeyValue(ctx, wire.IndexBucket(i.site))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return wire.IndexEntry{}, nil
	}
	if err != nil {
		return wire.IndexEntry{}, fmt.Errorf("index of site %s: %w", i.site, err)
	}
	e, err := kv.Get(ctx, instrument)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return wire.IndexEntry{}, nil
	}
	if err != nil {
		return wire.IndexEntry{}, fmt.Errorf("index of site %s: %w", i.site, err)
	}
	entry, err := wire.Decode[wire.IndexEntry](e.Value())
	if errors.Is(err, wire.ErrMalformed) {
		return wire.IndexEntry{}, nil // it is rebuilt
	}
	return entry, err
}

// forget marks the index as incomplete: the archivist rebuilds it.
func (i *index) forget(ctx context.Context, notes io.Writer) error {
	if i == nil {
		fmt.Fprintln(notes, "JetStream is not known (--nats-servers): readers over HTTP see the new manifests once the index is made anew. "+
			"Delete the key "+wire.IndexListedKey+" of the key-value bucket of the Site's index for that")
		return nil
	}
	kv, err := i.js.KeyValue(ctx, wire.IndexBucket(i.site))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	if err == nil {
		err = kv.Delete(ctx, wire.IndexListedKey)
	}
	if err != nil {
		return fmt.Errorf("the manifests are rebuilt, but the index could not be notified: delete key %s of bucket %s: %w",
			wire.IndexListedKey, wire.IndexBucket(i.site), err)
	}
	return nil
}
