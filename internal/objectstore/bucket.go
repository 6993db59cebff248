// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/substorm/substorm/internal/wire"
)

// bucket is Store on minio-go.
type bucket struct {
	core         *minio.Core
	name, region string
}

// seekOnly hides everything of a body but Read and Seek: minio-go closes what
// can be closed.
type seekOnly struct{ io.ReadSeeker }

func (b *bucket) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, opts PutOptions) error {
	digest, err := digestOf(body, size, opts.Digest)
	if err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	put := opts.minio()
	put.DisableContentSha256 = true // of the chunks: the digest of the whole is signed instead
	stored, err := b.core.PutObject(ctx, b.name, key, seekOnly{body}, size, "", digest.String(), put)
	if err != nil {
		return explainCreation("put", key, err)
	}
	return checkTag("put", key, stored.ETag)
}

// digestOf returns known, or else what the body's bytes give.
func digestOf(body io.ReadSeeker, size int64, known wire.Digest) (wire.Digest, error) {
	if known != (wire.Digest{}) {
		return known, nil
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return wire.Digest{}, err
	}
	h := sha256.New()
	if n, err := io.CopyN(h, body, size); err != nil {
		return wire.Digest{}, fmt.Errorf("body of %d bytes ended at %d: %w", size, n, err)
	}
	return wire.Digest(h.Sum(nil)), nil
}

// minio translates the options.
func (o PutOptions) minio() minio.PutObjectOptions {
	put := minio.PutObjectOptions{
		ContentType:      o.ContentType,
		UserMetadata:     make(map[string]string, len(o.Metadata)),
		DisableMultipart: true,
	}
	for name, value := range o.Metadata {
		put.UserMetadata[name] = encodeMetadata(value)
	}
	if o.CreateOnly {
		put.SetMatchETagExcept("*")
	}
	return put
}

// encodeMetadata writes what does not fit into a header as one RFC 2047 word,
// which minio-go decodes.
func encodeMetadata(value string) string {
	plain := !strings.HasPrefix(value, "=?") && strings.TrimSpace(value) == value
	for i := 0; plain && i < len(value); i++ {
		plain = value[i] >= ' ' && value[i] <= '~'
	}
	if plain {
		return value
	}
	return "=?UTF-8?B?" + base64.StdEncoding.EncodeToString([]byte(value)) + "?="
}

func (b *bucket) Get(ctx context.Context, key string, r Range) (io.ReadCloser, Info, error) {
	var opts minio.GetObjectOptions
	if r != All {
		last := int64(0) // minio-go: up to the end
		if r.Length > 0 {
			last = r.Offset + r.Length - 1
		}
		if err := opts.SetRange(r.Offset, last); err != nil {
			return nil, Info{}, fmt.Errorf("get %s: range %+v: %w", key, r, err)
		}
	}
	body, info, _, err := b.core.GetObject(ctx, b.name, key, opts)
	if err != nil {
		return nil, Info{}, explain("get", key, err)
	}
	if err := checkTag("get", key, info.ETag); err != nil {
		return nil, Info{}, errors.Join(err, body.Close())
	}
	return body, Info{Key: info.Key, Size: info.Size, ModifiedAt: info.LastModified}, nil
}

func (b *bucket) Head(ctx context.Context, key string) (Info, error) {
	info, err := b.core.StatObject(ctx, b.name, key, minio.StatObjectOptions{})
	if err != nil {
		return Info{}, explain("head", key, err)
	}
	return infoOf(info), checkTag("head", key, info.ETag)
}

func infoOf(o minio.ObjectInfo) Info {
	return Info{
		Key: o.Key, Size: o.Size, ModifiedAt: o.LastModified,
		ContentType: o.ContentType, Metadata: o.UserMetadata,
	}
}

func (b *bucket) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		opts := minio.ListObjectsOptions{Prefix: prefix, StartAfter: startAfter, Recursive: true}
		for o := range b.core.ListObjectsIter(ctx, b.name, opts) {
			if o.Err != nil {
				yield(Info{}, explain("list", prefix, o.Err))
				return
			}
			if !yield(infoOf(o), nil) {
				return
			}
		}
		if ctx.Err() != nil { // then minio-go ends without a word
			yield(Info{}, explain("list", prefix, ctx.Err()))
		}
	}
}

func (b *bucket) Folders(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for o := range b.core.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: prefix}) {
			if o.Err != nil {
				yield("", explain("list", prefix, o.Err))
				return
			}
			name, isFolder := strings.CutSuffix(strings.TrimPrefix(o.Key, prefix), "/")
			if isFolder && !yield(name, nil) {
				return
			}
		}
		if ctx.Err() != nil {
			yield("", explain("list", prefix, ctx.Err()))
		}
	}
}

func (b *bucket) Delete(ctx context.Context, key string) error {
	err := b.core.RemoveObject(ctx, b.name, key, minio.RemoveObjectOptions{})
	if err = explain("delete", key, err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (b *bucket) AbortOldUploads(ctx context.Context, prefix string, before time.Time) (int, error) {
	aborted := 0
	for u := range b.core.ListIncompleteUploads(ctx, b.name, prefix, true) {
		if u.Err != nil {
			return aborted, explain("list uploads", prefix, u.Err)
		}
		if !u.Initiated.Before(before) {
			continue
		}
		err := explain("abort upload", u.Key, b.core.AbortMultipartUpload(ctx, b.name, u.Key, u.UploadID))
		if err != nil && !errors.Is(err, ErrNotFound) {
			return aborted, err
		}
		aborted++
	}
	return aborted, explain("list uploads", prefix, ctx.Err())
}

func (b *bucket) CheckBucket(ctx context.Context) error {
	for o := range b.core.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{MaxKeys: 1}) {
		return explain("bucket", b.name, o.Err)
	}
	return explain("bucket", b.name, ctx.Err()) // or it is empty
}

func (b *bucket) EnsureBucket(ctx context.Context) (bool, error) {
	exists, err := b.core.BucketExists(ctx, b.name)
	if err != nil || exists {
		return false, explain("bucket", b.name, err)
	}
	err = b.core.MakeBucket(ctx, b.name, minio.MakeBucketOptions{Region: b.region})
	if minio.ToErrorResponse(err).Code == minio.BucketAlreadyOwnedByYou {
		return false, nil
	}
	return err == nil, explain("make bucket", b.name, err)
}
