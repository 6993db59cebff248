// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/substorm/substorm/internal/wire"
)

// keyFile of an upload's folder names its key. The parts lie beside it, under their numbers.
const keyFile = "key"

// folderUpload is an object that arrives in parts, in a folder of its own under hidden.
type folderUpload struct {
	folder *folder
	key    string
	path   string
	opts   PutOptions
}

func (f *folder) NewUpload(ctx context.Context, key string, opts PutOptions) (Upload, error) {
	if err := f.CheckBucket(ctx); err != nil {
		return nil, fmt.Errorf("begin upload %s: %w", key, err)
	}
	u := &folderUpload{folder: f, key: key, path: filepath.Join(f.bucket, hidden, rand.Text()), opts: opts}
	_, err := nameOf(key)
	if err == nil {
		err = os.Mkdir(u.path, folderMode)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(u.path, keyFile), []byte(key), fileMode)
	}
	if err != nil {
		return nil, explainFile("begin upload", key, err)
	}
	return u, nil
}

// ofUpload says whether the key file of an upload names a key that begins with prefix.
func ofUpload(path, prefix string) bool {
	key, err := os.ReadFile(path)
	return err == nil && strings.HasPrefix(string(key), prefix)
}

func (u *folderUpload) Part(ctx context.Context, number int, body io.ReadSeeker, size int64, digest wire.Digest) error {
	return explainFile(fmt.Sprintf("upload part %d of", number), u.key, u.part(ctx, number, body, size, digest))
}

func (u *folderUpload) part(ctx context.Context, number int, body io.ReadSeeker, size int64, digest wire.Digest) error {
	if number < 1 || number > MaxParts {
		return fmt.Errorf("parts have numbers from 1 to %d", MaxParts)
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	unfinished := filepath.Join(u.path, rand.Text())
	file, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, h), io.LimitReader(canceling{ctx, body}, size))
	err = errors.Join(err, file.Close())
	switch {
	case err != nil:
	case n < size:
		err = fmt.Errorf("body of %d bytes ended at %d: %w", size, n, io.ErrUnexpectedEOF)
	case digest != (wire.Digest{}) && wire.Digest(h.Sum(nil)) != digest:
		err = ErrDigest
	default:
		err = os.Rename(unfinished, u.number(number))
	}
	if err != nil {
		_ = os.Remove(unfinished)
	}
	return err
}

func (u *folderUpload) number(n int) string { return filepath.Join(u.path, fmt.Sprintf("%05d", n)) }

// Complete copies the parts, by copy_file_range(2) where the file system has it, and syncs what comes of it once.
func (u *folderUpload) Complete(ctx context.Context) error {
	err := u.folder.write(ctx, u.key, u.opts, func(to *os.File) error { return u.join(ctx, to) })
	if err == nil {
		err = os.RemoveAll(u.path)
	}
	return explainFile("complete upload", u.key, err)
}

func (u *folderUpload) join(ctx context.Context, to *os.File) error {
	parts, err := filepath.Glob(filepath.Join(u.path, "[0-9][0-9][0-9][0-9][0-9]"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(u.path); err != nil {
		return err
	}
	for i, path := range parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := appendFile(to, path, i == len(parts)-1); err != nil {
			return err
		}
	}
	return nil
}

func appendFile(to *os.File, path string, last bool) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	if info, err := from.Stat(); err != nil || info.Size() < MinPart && !last {
		return errors.Join(err, fmt.Errorf("part %s is smaller than %d bytes, and not the last", filepath.Base(path), MinPart))
	}
	_, err = io.Copy(to, from)
	return err
}

func (u *folderUpload) Abort(context.Context) error {
	if err := os.RemoveAll(u.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return explainFile("abort upload", u.key, err)
	}
	return nil
}
