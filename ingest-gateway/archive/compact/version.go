// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// scratchPattern names files in ScratchDir.
const scratchPattern = "compact-*"

// version is a new version of a day's manifest, which is written into a file.
type version struct {
	compactor *Compactor
	key       string
	file      *os.File
	lines     *wire.ManifestWriter
	count     int
}

// newVersion begins the version that replaces the files of a day.
func (c *Compactor) newVersion(files manifest.Files, instrument string, day wire.Day) (*version, error) {
	file, err := scratch(c.cfg.ScratchDir)
	if err != nil {
		return nil, err
	}
	v := &version{compactor: c, file: file, key: wire.ManifestVersionKey(c.cfg.Site, instrument, day, files.NextVersion)}
	header := wire.ManifestHeader{
		Site: c.cfg.Site, Instrument: instrument, Day: day, Writer: c.cfg.Gateway, Incarnation: c.cfg.Incarnation,
		Replaces: append([]string(nil), files.Replaced...), NextPart: files.NextPart,
	}
	for _, key := range files.InEffect {
		if name, err := wire.ParseManifestKey(key); err == nil && !name.Compacted {
			header.Replaces = append(header.Replaces, key)
		}
	}
	if v.lines, err = wire.NewManifestWriter(file, header); err != nil {
		v.discard()
		return nil, err
	}
	return v, nil
}

// scratch returns a file without a name: it is gone when it is closed.
func scratch(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, scratchPattern)
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

func (v *version) add(r wire.Record) error {
	v.count++
	return v.lines.Add(r)
}

// store makes the version the one in effect. Errors: ErrFenced.
func (v *version) store(ctx context.Context) error {
	c := v.compactor
	head, err := v.lines.Close()
	if err != nil {
		return fmt.Errorf("%s: %w", v.key, err)
	}
	lines, err := v.file.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("%s: %w", v.key, err)
	}
	// The header's frame goes first.
	whole, err := scratch(c.cfg.ScratchDir)
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
	if err := c.cfg.Lease.Check(); err != nil {
		return err
	}
	err = c.cfg.Store.Put(ctx, v.key, whole, int64(len(head))+lines, objectstore.PutOptions{
		ContentType: "application/zstd", Digest: wire.Digest(digest.Sum(nil)), CreateOnly: true})
	if errors.Is(err, objectstore.ErrExists) {
		return fmt.Errorf("%s: %w", v.key, ErrFenced)
	}
	return err
}
