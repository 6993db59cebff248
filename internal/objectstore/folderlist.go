// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// entry is a file or a folder of the bucket. Its key ends with a slash where it is a folder: all keys beneath begin with it.
type entry struct {
	key    string
	name   string
	folder bool
}

// entries are those of a folder, in the order of their keys' bytes. At is the key of the folder, "" for the bucket.
func (f *folder) entries(path, at string) ([]entry, error) {
	found, err := os.ReadDir(path)
	if err != nil {
		return nil, f.missing(err)
	}
	var all []entry
	for _, e := range found {
		if at == "" && e.Name() == hidden {
			continue
		}
		one := entry{key: at + partOf(e.Name()), name: e.Name(), folder: e.IsDir()}
		if one.folder {
			one.key += "/"
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	return all, nil
}

func (f *folder) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := f.walk(ctx, f.bucket, "", prefix, startAfter, func(i Info) bool { return yield(i, nil) }); err != nil && !errors.Is(err, errEnough) {
			yield(Info{}, explainFile("list", prefix, err))
		}
	}
}

var errEnough = errors.New("the caller wants no more")

// walk goes through the objects of a folder, and of those beneath.
func (f *folder) walk(ctx context.Context, path, at, prefix, startAfter string, yield func(Info) bool) error {
	all, err := f.entries(path, at)
	if errors.Is(err, fs.ErrNotExist) && at != "" {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	for _, e := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		inside := filepath.Join(path, e.name)
		switch {
		case e.folder:
			if reaches(e.key, prefix) && (startAfter < e.key || strings.HasPrefix(startAfter, e.key)) {
				if err := f.walk(ctx, inside, e.key, prefix, startAfter, yield); err != nil {
					return err
				}
			}
		case strings.HasPrefix(e.key, prefix) && e.key > startAfter:
			stat, err := os.Lstat(inside)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if stat.Mode().IsRegular() && !yield(Info{Key: e.key, Size: stat.Size(), ModifiedAt: stat.ModTime()}) {
				return errEnough
			}
		}
	}
	return ctx.Err()
}

// reaches says whether keys beneath a folder may begin with prefix.
func reaches(folder, prefix string) bool {
	return strings.HasPrefix(folder, prefix) || strings.HasPrefix(prefix, folder)
}

func (f *folder) Folders(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		name, err := nameOf(strings.TrimSuffix(prefix, "/"))
		if prefix == "" {
			name = ""
		}
		var all []entry
		if err == nil {
			all, err = f.entries(filepath.Join(f.bucket, name), prefix)
		}
		if errors.Is(err, fs.ErrNotExist) && prefix != "" {
			err = nil
		}
		for _, e := range all {
			if ctx.Err() != nil {
				break
			}
			if e.folder && !yield(strings.TrimSuffix(strings.TrimPrefix(e.key, prefix), "/"), nil) {
				return
			}
		}
		if err = cmp.Or(ctx.Err(), err); err != nil {
			yield("", explainFile("list", prefix, err))
		}
	}
}
