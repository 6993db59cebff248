// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// files are those of a day's manifest, also where some cannot be read.
type files struct {
	readable, unreadable  []string
	foreign               []string // no files of a manifest
	parts                 []string // all that a new version replaces
	nextPart, nextVersion int
}

// readable finds the files of a day that can be read and are in effect; where the
// newest version cannot, the newest that can and all parts.
func readable(ctx context.Context, store objectstore.Store, site string, of List) (files, error) {
	f := files{nextPart: 1, nextVersion: 1}
	versions, parts, err := f.list(ctx, store, site, of)
	if err != nil {
		return f, err
	}
	replaced, err := f.newest(ctx, store, versions)
	if err != nil {
		return f, err
	}
	for _, part := range parts {
		key := wire.ManifestPartKey(site, of.Instrument, of.Day, part.Number)
		if replaced[key] {
			continue
		}
		_, err := readWhole(ctx, store, key)
		switch {
		case errors.Is(err, wire.ErrMalformed):
			f.unreadable = append(f.unreadable, key)
		case err != nil:
			return f, err
		default:
			f.readable = append(f.readable, key)
		}
	}
	return f, nil
}

// list finds all files of a day: versions and parts, in the order of their numbers.
func (f *files) list(ctx context.Context, store objectstore.Store, site string, of List) (versions, parts []wire.ManifestFile, err error) {
	for info, err := range store.List(ctx, wire.ManifestPrefix(site, of.Instrument, of.Day), "") {
		if err != nil {
			return nil, nil, err
		}
		name, err := wire.ParseManifestKey(info.Key)
		switch {
		case err != nil:
			f.foreign = append(f.foreign, info.Key)
		case name.Compacted:
			versions = append(versions, name)
			f.nextVersion = max(f.nextVersion, name.Number+1)
		default:
			parts = append(parts, name)
			f.parts = append(f.parts, info.Key)
			f.nextPart = max(f.nextPart, name.Number+1)
		}
	}
	number := func(a, b wire.ManifestFile) int { return cmp.Compare(a.Number, b.Number) }
	slices.SortFunc(versions, number)
	slices.SortFunc(parts, number)
	return versions, parts, nil
}

// newest takes the newest version that can be read, and returns the parts that it
// replaces.
func (f *files) newest(ctx context.Context, store objectstore.Store, versions []wire.ManifestFile) (map[string]bool, error) {
	replaced := map[string]bool{}
	for i, v := range slices.Backward(versions) {
		key := wire.ManifestVersionKey(v.Site, v.Instrument, v.Day, v.Number)
		header, err := readWhole(ctx, store, key)
		if errors.Is(err, wire.ErrMalformed) {
			f.unreadable = append(f.unreadable, key)
			continue
		}
		if err != nil {
			return nil, err
		}
		f.readable = append(f.readable, key)
		f.nextPart = max(f.nextPart, header.NextPart)
		for _, part := range header.Replaces {
			replaced[part] = i == len(versions)-1 // an older one does not know where the bytes went since
			if !slices.Contains(f.parts, part) {
				f.parts = append(f.parts, part)
			}
		}
		break
	}
	return replaced, nil
}

// readWhole reads a file to its end.
func readWhole(ctx context.Context, store objectstore.Store, key string) (wire.ManifestHeader, error) {
	for _, err := range manifest.RecordsOf(ctx, store, []string{key}) {
		if err != nil {
			return wire.ManifestHeader{}, err
		}
	}
	return manifest.Header(ctx, store, key)
}

func (f files) records(ctx context.Context, store objectstore.Store) iter.Seq2[wire.Record, error] {
	return manifest.RecordsOf(ctx, store, f.readable)
}
