// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/bucket"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

// damaged is a finding beside those of a comparison: the bytes are not those that
// were received.
const damaged bucket.DifferenceKind = "Damaged"

func verifyCommand(o *backend.Options) *cobra.Command {
	v := verify{found: map[bucket.DifferenceKind]int{}}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that everything listed is there, whole, and that everything stored is listed",
		Long: `Reads every object that the manifests list and compares its bytes with its size and
digest, and compares the manifests with what the bucket holds. Each finding is a line:

  Damaged     the bytes are not those that were received
  Missing     listed, and not stored
  Unlisted    stored, and not listed: substorm archive rebuild lists it
  Moved       the bytes are not where the manifest says: substorm archive rebuild mends it
  Unreadable  a file of the manifest cannot be read: substorm archive rebuild replaces it;
              or one of changes, and nobody knows what it retracted: bring it back from a
              copy. Where there is none write down what the manifest says (substorm archive
              rebuild --tell), and then take the file away: until then no rebuild lists
              anything of its day
  NoManifest  the Site's index or ledger knows objects of the day, and the bucket has no
              manifest of it: substorm archive rebuild makes it anew of what is stored
  StaleIndex  the Site's index, which readers go by, names other files of a manifest than
              the bucket has: substorm archive rebuild has it made anew
  Foreign     what lies under a key of the archive and is no object, pack, manifest or
              changes that can be read as such: nobody sees it, nothing is done about it

It fails where there is any. With --quick no bytes are read: what is damaged is not found.`,
		Example: `  substorm archive verify --day yesterday
  substorm archive verify --instrument allsky-1 --quick`,
		Args: noNames,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if v.parallel < 1 || v.age < 0 {
				return usage.Errorf("--parallel is 1 or more, --age 0 or more")
			}
			return backend.WithStore(cmd.Context(), *o, func(b *backend.Backend, store objectstore.Store) error {
				defer v.open(cmd, b, store)()
				err := v.run(cmd.Context(), b)
				return errors.Join(err, v.compareKnown(cmd.Context(), b))
			})
		},
	}
	v.addFlags(cmd, "what was stored more recently than this need not be listed yet")
	cmd.Flags().BoolVar(&v.quick, "quick", false, "compare manifests and bucket, and read no bytes")
	cmd.Flags().IntVar(&v.parallel, "parallel", 8, "objects that are read at the same time")
	return cmd
}

// compareKnown prints what the Site knows of damage beside what was found now.
func (v *verify) compareKnown(ctx context.Context, b *backend.Backend) error {
	if !b.KnowsJetStream() || ctx.Err() != nil {
		return nil
	}
	js, err := b.JetStream(ctx)
	if err != nil {
		return err
	}
	known, err := readDamage(ctx, js, v.site, &v.selection)
	if err != nil {
		return err
	}
	fmt.Fprintln(v.notes, known)
	now := v.found[damaged] + v.found[bucket.Missing]
	if v.quick || now == known.Confirmed+known.Unconfirmed {
		return nil
	}
	fmt.Fprintf(v.notes, "found now: %d. The archivist finds what it does not know yet when it next reads the archive, and clears what is whole again; "+
		"then substorm status, ledger and report say the same\n", now)
	return nil
}

// verify is what `archive verify` does.
type verify struct {
	survey
	quick    bool
	parallel int

	mu             sync.Mutex
	objects, bytes uint64
	found          map[bucket.DifferenceKind]int
}

func (v *verify) run(ctx context.Context, b *backend.Backend) error {
	unknown := errors.Join(v.compareIndex(ctx, b, v.find), v.readFailed(ctx, b)) // while JetStream is away the objects are verified all the same
	err := v.each(ctx, func(key string, err error) error {
		return v.find(bucket.Foreign, bucket.List{Instrument: nowhere, Day: nowhere}, key, err.Error())
	}, v.list)
	if err != nil {
		return err
	}
	return errors.Join(unknown, v.verdict())
}

func (v *verify) list(ctx context.Context, of bucket.List, compare comparison) error {
	p, err := compare(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	missing := map[string]bool{}
	for _, d := range p.Differences {
		missing[d.ID] = missing[d.ID] || d.Kind == bucket.Missing || d.Kind == bucket.Moved
		if d.Kind == bucket.Untold {
			continue
		}
		if err := v.find(d.Kind, of, d.ID, describeDifference(d)); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(v.parallel)
	for n, err := range p.Records(groupCtx, v.store) {
		if err != nil {
			return errors.Join(group.Wait(), err)
		}
		if !bucket.Holds(n) || missing[n.ID] {
			continue
		}
		group.Go(func() error { return v.read(groupCtx, of, n) })
	}
	return group.Wait()
}

// read compares the bytes of one object.
func (v *verify) read(ctx context.Context, of bucket.List, r wire.Record) error {
	if !v.quick {
		err := bucket.Verify(ctx, v.store, r, nil)
		switch {
		case errors.Is(err, objectpath.ErrDamaged):
			return v.find(damaged, of, r.ID, err.Error())
		case errors.Is(err, bucket.ErrMissing):
			return v.find(bucket.Missing, of, r.ID, "")
		case err != nil:
			return err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.objects++
	v.bytes += uint64(r.Size)
	v.shown.Set(v.at, v.of, "%d objects, %s are whole so far, now %s of %s", v.objects, humanize.IBytes(v.bytes), of.Day, of.Instrument)
	return nil
}

func (v *verify) find(kind bucket.DifferenceKind, of bucket.List, id, detail string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.found[kind]++
	return v.print(kind, of, id, detail)
}

// verdict sums up. It returns an error if anything was found.
func (v *verify) verdict() error {
	how := "read and whole"
	if v.quick {
		how = "in their places; their bytes were not read"
	}
	fmt.Fprintf(v.notes, "%d objects, %s, %s\n", v.objects, humanize.IBytes(v.bytes), how)
	var what []string
	for kind, n := range v.found {
		what = append(what, fmt.Sprintf("%d %s", n, kind))
	}
	if len(what) == 0 {
		return nil
	}
	slices.Sort(what)
	return fmt.Errorf("the archive of site %s is not whole: %s", v.site, strings.Join(what, ", "))
}
