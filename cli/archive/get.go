// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/objectpath"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/wire"
)

func getCommand(o *backend.Options) *cobra.Command {
	var file string
	var retracted bool
	var s selection
	cmd := &cobra.Command{
		Use:   "get KEY | DIGEST | PATH | ALIAS",
		Short: "Fetch one object and verify its digest",
		Long: `Fetches the object of a key, or of a SHA-256 (or its first eight or more digits)
that the archive lists, or that is published under a path or has it as an alias,
and compares its bytes with its digest. A file of other bytes is not left behind;
what went to standard output is followed by an error. Paths and aliases are those
that the Instruments declare: they are read from the registry.

What was retracted is only given with --retracted.`,
		Example: `  substorm archive get o/demo/allsky-1/r/2026/11/21/1795305598987-9dff50df08c63581
  substorm archive get 9dff50df08c63581 --file frame.pgm.gz
  substorm archive get 9dff50df08c63581 --day today --file - | gunzip | file -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return backend.WithStore(cmd.Context(), *o, func(b *backend.Backend, store objectstore.Store) error {
				s.shown = progress.Start(cmd.ErrOrStderr(), file == "-" && progress.IsTerminal(cmd.OutOrStdout()), nil)
				defer s.shown.Stop()
				n, err := resolveReadable(cmd.Context(), b, store, args[0], &s, retracted)
				if err != nil {
					return err
				}
				return s.save(cmd.Context(), store, n, file, cmd.OutOrStdout())
			})
		},
	}
	s.addFlags(cmd)
	addRetracted(cmd.Flags(), &retracted)
	cmd.Flags().StringVarP(&file, "file", "f", "", "file to write; - is standard output (default: the last part of its path, name or key)")
	return cmd
}

var digestPrefix = regexp.MustCompile(`^[0-9a-f]{8,64}$`)

// shortDigest may be the beginning of a digest, and is too short to be taken for one.
var shortDigest = regexp.MustCompile(`^[0-9a-f]{1,7}$`)

// find returns the notice of an object by its key or the beginning of its digest.
func find(ctx context.Context, store objectstore.Store, site, name string, s *selection) (wire.Notice, error) {
	if !digestPrefix.MatchString(name) {
		return byKey(ctx, store, site, name, s)
	}
	var found []wire.Notice
	for n, err := range s.held(ctx, store, site) {
		if err != nil {
			return wire.Notice{}, err
		}
		if strings.HasPrefix(n.Digest.String(), name) {
			found = append(found, n)
		}
	}
	for i := range found {
		if found[i].Digest != found[0].Digest {
			return wire.Notice{}, fmt.Errorf("several objects begin with %s: %s and %s: give more digits or the key", name, found[0].Digest, found[i].Digest)
		}
	}
	if len(found) == 0 {
		return wire.Notice{}, fmt.Errorf("the archive of site %s lists no object whose sha-256 begins with %s; a new object is listed within a minute, and is available by its key at once", site, name)
	}
	for _, n := range found {
		if n.State != wire.StateRetracted {
			return n, nil
		}
	}
	return found[0], nil
}

func byKey(ctx context.Context, store objectstore.Store, site, key string, s *selection) (wire.Notice, error) {
	if _, packed := wire.KeyOfID(key); packed {
		return member(ctx, store, site, key, s)
	}
	info, err := store.Head(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		if n, err := byID(ctx, store, site, key, s); !errors.Is(err, errUnlisted) {
			return n, err // it was packed since
		}
		return wire.Notice{}, fmt.Errorf("the bucket holds no object %q: substorm archive ls shows the keys", key)
	}
	if err != nil {
		return wire.Notice{}, err
	}
	if !wire.IsOurs(key) {
		return findInPlace(ctx, store, site, key, s)
	}
	if _, err := wire.ParsePackKey(key); err == nil {
		return wire.Notice{}, fmt.Errorf("%s is a pack of %s objects: substorm archive ls shows them, each with a key of its own", key, info.Metadata[wire.MetadataMembers])
	}
	n, err := wire.NoticeFromMetadata(key, info.Metadata)
	if err != nil {
		return wire.Notice{}, fmt.Errorf("%w: its digest is unknown, so it cannot be verified", err)
	}
	return n, nil
}

// findInPlace finds an object that was imported where it lies: only the manifests know it. If several
// objects lay there, it returns the one that was last modified.
func findInPlace(ctx context.Context, store objectstore.Store, site, key string, s *selection) (wire.Notice, error) {
	var found wire.Notice
	for n, err := range s.held(ctx, store, site) {
		if err != nil {
			return wire.Notice{}, err
		}
		if n.Key == key && (found.Key == "" || n.ReceivedAt.After(found.ReceivedAt)) {
			found = n
		}
	}
	if found.Key == "" {
		return wire.Notice{}, fmt.Errorf("the archive of site %s does not list %q, which lies in its bucket: its digest is unknown, so it cannot be verified; "+
			"substorm import --in-place registers it", site, key)
	}
	return found, nil
}

// save writes an object to a file, or to out where that is "-".
func (s *selection) save(ctx context.Context, store objectstore.Store, n wire.Notice, file string, out io.Writer) error {
	if file == "-" {
		return s.fetch(ctx, store, n, out)
	}
	if file == "" {
		file = path.Base(wire.MemberName(n))
		switch {
		case n.Path != "":
			file = path.Base(n.Path)
		case n.Name != "":
			file = path.Base(n.Name)
		}
	}
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s exists and is left alone: name another one with --file", file)
	}
	part, err := os.CreateTemp(filepath.Dir(file), ".substorm-*")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no folder %s to write %s into: make it first", filepath.Dir(file), filepath.Base(file))
	}
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	err = s.fetch(ctx, store, n, part)
	if err := errors.Join(err, part.Close()); err != nil {
		return err
	}
	if err := os.Chmod(part.Name(), 0o644); err != nil {
		return err
	}
	if err := os.Rename(part.Name(), file); err != nil {
		return err
	}
	s.shown.Say("%s: %d bytes, sha-256 %s as listed", file, n.Size, n.Digest)
	return nil
}

// fetch copies an object's bytes, which are compared with its digest and size.
func (s *selection) fetch(ctx context.Context, store objectstore.Store, n wire.Notice, out io.Writer) error {
	body, err := objectpath.Open(ctx, store, n.Record)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(out, s.shown.Reader(body, n.Size))
	return err
}
