// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"os"
	"strings"

	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/internal/wire"
)

// target is what the argument names: a folder, or a prefix of the Site's bucket.
type target struct{ dir, prefix string }

// parseTarget understands the argument. Errors say what to do.
func parseTarget(tree, bucket string, inPlace bool) (target, error) {
	info, statErr := os.Stat(tree)
	isFolder := statErr == nil && info.IsDir()
	name, prefix, _ := strings.Cut(tree, "/")
	switch {
	case !inPlace && isFolder:
		return target{dir: tree}, nil
	case !inPlace && name == bucket:
		return target{}, usage.Errorf("%s lies in the Site's bucket: add --in-place, and its objects are registered where they lie", tree)
	case !inPlace && statErr == nil:
		return target{}, usage.Errorf("%s is not a folder: name the folder that contains it", tree)
	case !inPlace:
		return target{}, usage.Errorf("there is no folder %s: %w; copy objects of another bucket "+
			"first into a folder, or into the Site's bucket %s and import them with --in-place", tree, statErr, bucket)
	case name == bucket:
		return prefixTarget(prefix)
	case isFolder:
		return target{}, usage.Errorf("%s is a folder: readers of the archive get objects from the object store, "+
			"so files are registered in place only where it serves them, as BUCKET/PREFIX (the Site's bucket is %s); leave --in-place out to upload them", tree, bucket)
	default:
		return target{}, usage.Errorf("%s is not in the Site's bucket, which is %s: archived objects must be "+
			"served by its store; copy it there, or leave --in-place out and name a folder", tree, bucket)
	}
}

func prefixTarget(prefix string) (target, error) {
	prefix = strings.TrimSuffix(prefix, "/")
	if prefix == "" {
		return target{}, nil
	}
	prefix += "/"
	if wire.IsOurs(prefix) {
		return target{}, usage.Errorf("objects under %s belong to Substorm itself: name the prefix of the tree to import", prefix)
	}
	return target{prefix: prefix}, nil
}

func (t target) source(im *importer) source {
	if t.dir != "" {
		return &folder{dir: t.dir, site: im.site, instrument: im.instrument, store: im.store}
	}
	return &inPlace{prefix: t.prefix, store: im.store}
}
