// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// ErrFenced: another wrote the version of the manifest meanwhile. Compare anew.
var ErrFenced = errors.New("another wrote a version of the day")

// version is a day's manifest that is written into a file.
type version struct {
	key   string
	dir   string
	file  *os.File
	lines *wire.ManifestWriter
}

func newVersion(dir string, h wire.ManifestHeader, number int) (*version, error) {
	file, err := unnamed(dir)
	if err != nil {
		return nil, err
	}
	v := &version{key: wire.ManifestVersionKey(h.Site, h.Instrument, h.Day, number), dir: dir, file: file}
	if v.lines, err = wire.NewManifestWriter(file, h); err != nil {
		v.discard()
		return nil, err
	}
	return v, nil
}

// unnamed returns a file that is gone when it is closed.
func unnamed(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "substorm-manifest-*")
	if err != nil {
		return nil, fmt.Errorf("scratch: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("scratch: %w", err)
	}
	return f, nil
}

func (v *version) discard() { _ = v.file.Close() }

// store makes the version the one in effect. Errors: ErrFenced.
func (v *version) store(ctx context.Context, store objectstore.Store) error {
	head, err := v.lines.Close()
	if err != nil {
		return fmt.Errorf("%s: %w", v.key, err)
	}
	size, err := v.file.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("%s: %w", v.key, err)
	}
	whole, err := unnamed(v.dir)
	if err != nil {
		return err
	}
	defer whole.Close()
	digest := sha256.New()
	out := io.MultiWriter(whole, digest)
	if _, err := out.Write(head); err != nil {
		return fmt.Errorf("%s: %w", v.key, err)
	}
	if _, err := io.Copy(out, io.NewSectionReader(v.file, 0, size)); err != nil {
		return fmt.Errorf("%s: %w", v.key, err)
	}
	err = store.Put(ctx, v.key, whole, int64(len(head))+size, objectstore.PutOptions{
		ContentType: "application/zstd", Digest: wire.Digest(digest.Sum(nil)), CreateOnly: true})
	if errors.Is(err, objectstore.ErrExists) {
		return fmt.Errorf("%s: %w", v.key, ErrFenced)
	}
	return err
}
