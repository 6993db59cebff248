// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// known is what the manifests list of an instrument: 24 bytes for each object
// that has a name or was imported.
type known struct {
	all []listed
	// folders of the names, by the hashes of the keys that objects of their names would have.
	folders map[uint64]struct{}
	// imported has the totals, by day, of what imports have listed.
	imported map[wire.Day]wire.Totals
}

// listed stands for an object: its key (the key of the first version), what distinguishes it from others under the same key without
// reading a byte, and its digest.
type listed struct{ key, print, digest uint64 }

func hashKey(key string) uint64 {
	sum := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(sum[:])
}

// fingerprint of a key, a size and a modification time. Together with the key's
// own hash it has 128 bits.
func fingerprint(key string, size int64, modified time.Time) uint64 {
	b := make([]byte, 0, len(key)+16)
	b = binary.BigEndian.AppendUint64(b, uint64(size))
	b = binary.BigEndian.AppendUint64(b, uint64(modified.UnixNano()))
	sum := sha256.Sum256(append(b, key...))
	return binary.BigEndian.Uint64(sum[:])
}

func shortDigest(d wire.Digest) uint64 { return binary.BigEndian.Uint64(d[:]) }

func listedOf(key string, size int64, modified time.Time, digest wire.Digest) listed {
	return listed{hashKey(key), fingerprint(key, size, modified), shortDigest(digest)}
}

// readKnown reads an instrument's manifests.
func readKnown(ctx context.Context, store objectstore.Store, site, instrument string) (*known, error) {
	k := &known{imported: make(map[wire.Day]wire.Totals), folders: map[uint64]struct{}{}}
	for day, err := range manifest.Days(ctx, store, site, instrument) {
		if err != nil {
			return nil, err
		}
		for r, err := range manifest.Day(ctx, store, site, instrument, day) {
			if err != nil {
				return nil, fmt.Errorf("manifest of instrument %s, %s: %w", instrument, day, err)
			}
			if r.Gateway == wire.ImportWriter {
				k.imported[day] = k.imported[day].Plus(totalsOf(r))
			}
			if wire.IsOurs(r.Key) {
				for _, folder := range wire.NameFolders(r.Name) {
					k.folders[hashKey(wire.NamedKey(site, instrument, folder, 1))] = struct{}{}
				}
			}
			if r.Name != "" {
				k.all = append(k.all, listedOf(firstVersion(site, instrument, r), r.Size, r.ReceivedAt, r.Digest))
			}
		}
	}
	slices.SortFunc(k.all, func(a, b listed) int { return cmp.Compare(a.key, b.key) })
	return k, nil
}

// firstVersion is the key of the first version of what a record lists.
func firstVersion(site, instrument string, r wire.Record) string {
	if wire.IsOurs(r.Key) {
		return wire.NamedKey(site, instrument, r.Name, 1)
	}
	return r.Key
}

// isFolder says whether names of objects lie below the one that a key is of.
func (k *known) isFolder(key string) bool {
	_, found := k.folders[hashKey(key)]
	return found
}

// of returns the objects that are listed under a key.
func (k *known) of(key string) []listed {
	hash := hashKey(key)
	from, found := slices.BinarySearchFunc(k.all, hash, func(l listed, h uint64) int { return cmp.Compare(l.key, h) })
	if !found {
		return nil
	}
	until := from
	for until < len(k.all) && k.all[until].key == hash {
		until++
	}
	return k.all[from:until]
}

// unchanged says whether one of the objects has the size and modification time.
func unchanged(objects []listed, key string, size int64, modified time.Time) bool {
	if len(objects) == 0 {
		return false
	}
	print := fingerprint(key, size, modified)
	return slices.ContainsFunc(objects, func(l listed) bool { return l.print == print })
}

// holds says whether one of the objects has the digest.
func holds(objects []listed, digest wire.Digest) bool {
	return slices.ContainsFunc(objects, func(l listed) bool { return l.digest == shortDigest(digest) })
}

func totalsOf(r wire.Record) wire.Totals {
	return wire.Totals{Objects: 1, ObjectBytes: uint64(r.Size), Digest: r.Digest}
}
