// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"path/filepath"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Archive is read as any program reads a folder of objects, beside the process that writes it.
type Archive struct {
	store objectstore.Store
	// intact are the IDs of objects whose bytes were compared with their digest.
	intact map[string]bool
}

// OpenArchive opens the archive in a data folder.
func OpenArchive(dataDir string) (*Archive, error) {
	store, err := objectstore.Open(objectstore.Config{Endpoint: objectstore.FolderEndpoint(filepath.Join(dataDir, "objects")), Bucket: "archive"})
	return &Archive{store: store, intact: map[string]bool{}}, err
}

// Read calls each for every object of an instrument that the manifests list. With check, the bytes of each are read once and compared with
// its digest; one that differs is an error.
func (a *Archive) Read(ctx context.Context, instrument string, check bool, each func(wire.Record)) error {
	for day, err := range manifest.Days(ctx, a.store, Code, instrument) {
		if err != nil {
			return err
		}
		for r, err := range manifest.Records(ctx, a.store, Code, instrument, day) {
			if err != nil {
				return fmt.Errorf("the list of %s, %s: %w", instrument, day, err)
			}
			if r.State != wire.StateCurrent {
				continue
			}
			if check && !a.intact[r.ID] {
				if err := a.compare(ctx, r); err != nil {
					return err
				}
				a.intact[r.ID] = true
			}
			each(r)
		}
	}
	return nil
}

func (a *Archive) compare(ctx context.Context, r wire.Record) error {
	place := objectstore.All
	if r.InPack() {
		place = objectstore.Range{Offset: r.Offset, Length: r.Length}
	}
	body, _, err := a.store.Get(ctx, r.Key, place)
	if err != nil {
		return err
	}
	defer body.Close()
	h := sha256.New()
	if _, err := io.Copy(h, body); err != nil {
		return err
	}
	if is := wire.Digest(h.Sum(nil)); is != r.Digest {
		return fmt.Errorf("%s is damaged: its bytes have the digest %s, and it is listed with %s", r.ID, is, r.Digest)
	}
	return nil
}
