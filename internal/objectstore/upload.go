// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/substorm/substorm/internal/wire"
)

// copyPart is how much of an object one request copies. It bounds how long the
// server works before it answers (30 seconds at 5 MB/s); 10,000 of them are 1.4 TiB.
const copyPart = 150 << 20

type upload struct {
	bucket *bucket
	key    string
	id     string
	put    minio.PutObjectOptions

	mu    sync.Mutex
	parts map[int]minio.CompletePart
}

func (b *bucket) NewUpload(ctx context.Context, key string, opts PutOptions) (Upload, error) {
	u, err := b.newUpload(ctx, key, opts)
	if err != nil {
		return nil, err // a nil *upload would be an Upload that is not nil
	}
	return u, nil
}

func (b *bucket) newUpload(ctx context.Context, key string, opts PutOptions) (*upload, error) {
	begin := opts
	begin.CreateOnly = false // what counts is whether the key is free at the end
	id, err := b.core.NewMultipartUpload(ctx, b.name, key, begin.minio())
	if err != nil {
		return nil, explainCreation("begin upload", key, err)
	}
	if id == "" {
		return nil, fmt.Errorf("begin upload %s: %w: its answer names no upload", key, ErrNoS3)
	}
	var end minio.PutObjectOptions
	if opts.CreateOnly {
		end.SetMatchETagExcept("*")
	}
	return &upload{bucket: b, key: key, id: id, put: end, parts: map[int]minio.CompletePart{}}, nil
}

func (u *upload) Part(ctx context.Context, number int, body io.ReadSeeker, size int64, digest wire.Digest) error {
	call := fmt.Sprintf("upload part %d of", number)
	digest, err := digestOf(body, size, digest)
	if err != nil {
		return fmt.Errorf("%s %s: %w", call, u.key, err)
	}
	part, err := u.bucket.core.PutObjectPart(ctx, u.bucket.name, u.key, u.id, number, seekOnly{body}, size,
		minio.PutObjectPartOptions{Sha256Hex: digest.String(), DisableContentSha256: true})
	if err != nil {
		return explain(call, u.key, err)
	}
	if err := checkTag(call, u.key, part.ETag); err != nil {
		return err
	}
	u.add(minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag})
	return nil
}

func (u *upload) add(p minio.CompletePart) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[p.PartNumber] = p
}

func (u *upload) Complete(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	parts := slices.SortedFunc(maps.Values(u.parts), func(a, b minio.CompletePart) int { return a.PartNumber - b.PartNumber })
	stored, err := u.bucket.core.CompleteMultipartUpload(ctx, u.bucket.name, u.key, u.id, parts, u.put)
	if err != nil {
		return explain("complete upload", u.key, err)
	}
	return checkTag("complete upload", u.key, stored.ETag)
}

func (u *upload) Abort(ctx context.Context) error {
	err := u.bucket.core.AbortMultipartUpload(ctx, u.bucket.name, u.key, u.id)
	if err = explain("abort upload", u.key, err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Copy goes by parts whatever the size: a single CopyObject ends at 5 GiB and
// has no create-only form that all servers know.
func (b *bucket) Copy(ctx context.Context, from, to string, opts PutOptions) (err error) {
	source, err := b.Head(ctx, from)
	if err != nil {
		return fmt.Errorf("copy to %s: %w", to, err)
	}
	if source.Size == 0 {
		return fmt.Errorf("copy %s to %s: an empty object cannot be copied", from, to)
	}
	u, err := b.newUpload(ctx, to, opts)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			abort, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			_ = u.Abort(abort) // what stays is found by AbortOldUploads
		}
	}()
	for number, offset := 1, int64(0); offset < source.Size; number, offset = number+1, offset+copyPart {
		length := min(copyPart, source.Size-offset)
		part, err := b.core.CopyObjectPart(ctx, b.name, from, b.name, to, u.id, number, offset, length, nil)
		if err != nil {
			return explain(fmt.Sprintf("copy %s to", from), to, err)
		}
		u.add(part)
	}
	return u.Complete(ctx)
}
