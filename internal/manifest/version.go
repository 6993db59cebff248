// SPDX-License-Identifier: Apache-2.0

package manifest

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

// ErrFenced: another writer wrote this version of the day. Read the day again.
var ErrFenced = errors.New("another writer wrote a version of the day")

// Version is a version of a day's manifest that is written into a file, and then stored.
type Version struct {
	key, dir string
	file     *os.File
	lines    *wire.ManifestWriter
	count    int
}

// NewVersion begins the version with a number, in a folder for scratch files.
func NewVersion(dir string, h wire.ManifestHeader, number int) (*Version, error) {
	file, err := Scratch(dir)
	if err != nil {
		return nil, err
	}
	v := &Version{key: wire.ManifestVersionKey(h.Site, h.Instrument, h.Day, number), dir: dir, file: file}
	if v.lines, err = wire.NewManifestWriter(file, h); err != nil {
		v.Discard()
		return nil, err
	}
	return v, nil
}

// Scratch returns a file without a name: it is gone when it is closed.
func Scratch(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "substorm-*")
	if err != nil {
		return nil, fmt.Errorf("scratch: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("scratch: %w", err)
	}
	return f, nil
}

// Discard gives the file back.
func (v *Version) Discard() { _ = v.file.Close() }

// Add adds a line.
func (v *Version) Add(r wire.Record) error {
	v.count++
	return v.lines.Add(r)
}

// Count is how many lines were added.
func (v *Version) Count() int { return v.count }

// Store makes the version the one in effect; may is asked right before that. Errors:
// ErrFenced, may's, those of objectstore.
func (v *Version) Store(ctx context.Context, store objectstore.Store, may func() error) error {
	head, err := v.lines.Close()
	if err != nil {
		return fmt.Errorf("%s: %w", v.key, err)
	}
	lines, err := v.file.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("%s: %w", v.key, err)
	}
	// The header's frame goes first.
	whole, err := Scratch(v.dir)
	if err != nil {
		return err
	}
	defer whole.Close()
	digest := sha256.New()
	out := io.MultiWriter(whole, digest)
	if _, err := out.Write(head); err != nil {
		return fmt.Errorf("%s: %w", v.key, err)
	}
	if _, err := io.Copy(out, io.NewSectionReader(v.file, 0, lines)); err != nil {
		return fmt.Errorf("%s: %w", v.key, err)
	}
	if err := may(); err != nil {
		return err
	}
	err = store.Put(ctx, v.key, whole, int64(len(head))+lines, objectstore.PutOptions{
		ContentType: "application/zstd", Digest: wire.Digest(digest.Sum(nil)), CreateOnly: true})
	if errors.Is(err, objectstore.ErrExists) {
		return fmt.Errorf("%s: %w", v.key, ErrFenced)
	}
	return err
}
