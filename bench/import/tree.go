// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/bench/internal/receiver"
)

const (
	prefix = "old/allsky"
	// template of names in the tree.
	template = "{year}/{month}/{day}/{hour}{minute}{second}.{any}"
	// fileSize is the size of a minute of a magnetometer.
	fileSize = 1536
	// aDay is how many files a day has: one every eight seconds.
	aDay = 10_800
	// batch is how many files go into the bucket in one request.
	batch = 5_400
)

var firstDay = time.Date(2005, 1, 1, 0, 0, 0, 0, time.UTC)

// tree is the bucket with the files.
type tree struct {
	client *minio.Client
	bucket string
	files  int
}

func openTree(b receiver.Bucket, files int) (*tree, error) {
	client, err := minio.New(b.Endpoint[len("http://"):], &minio.Options{Creds: credentials.NewStaticV4(b.AccessKeyID, b.SecretAccessKey, "")})
	return &tree{client: client, bucket: b.Name, files: files}, err
}

// at is when file n was made.
func (t *tree) at(n int) time.Time {
	return firstDay.AddDate(0, 0, n/aDay).Add(time.Duration(n%aDay) * 24 * time.Hour / aDay)
}

func (t *tree) key(n int) string { return prefix + "/" + t.at(n).Format("2006/01/02/150405") + ".txt" }

func content(n, version int) []byte {
	data := bytes.Repeat([]byte("2005-01-01 00:00:00 11039.12 -42.07 55210.33\n"), fileSize/45+1)[:fileSize]
	binary.BigEndian.PutUint32(data, uint32(n))
	binary.BigEndian.PutUint32(data[4:], uint32(version))
	return data
}

// fill writes all files, thousands in a request: MinIO unpacks tars.
func (t *tree) fill(ctx context.Context, progress func(int64)) error {
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for first := 0; first < t.files; first += batch {
		group.Go(func() error {
			objects := make(chan minio.SnowballObject)
			go func() {
				defer close(objects)
				for n := first; n < min(first+batch, t.files); n++ {
					select {
					case objects <- minio.SnowballObject{Key: t.key(n), Size: fileSize, ModTime: t.at(n), Content: bytes.NewReader(content(n, 1))}:
					case <-ctx.Done():
						return
					}
				}
			}()
			if err := t.client.PutObjectsSnowball(ctx, t.bucket, minio.SnowballOptions{InMemory: true}, objects); err != nil {
				return fmt.Errorf("fill the bucket: %w", err)
			}
			progress(done.Add(int64(min(batch, t.files-first))))
			return nil
		})
	}
	return group.Wait()
}

// change overwrites some files, spread over the tree.
func (t *tree) change(ctx context.Context, files, version int) error {
	for i := range files {
		n := i * (t.files / files)
		_, err := t.client.PutObject(ctx, t.bucket, t.key(n), bytes.NewReader(content(n, version)), fileSize, minio.PutObjectOptions{})
		if err != nil {
			return fmt.Errorf("change %s: %w", t.key(n), err)
		}
	}
	return nil
}

// digests reads files and computes their digests, so many at a time, and returns
// files a second: what no import that reads can do without.
func (t *tree) digests(ctx context.Context, files, parallel int) (float64, error) {
	begin := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range files {
		group.Go(func() error {
			key := t.key(i * (t.files / files))
			object, err := t.client.GetObject(ctx, t.bucket, key, minio.GetObjectOptions{})
			if err != nil {
				return err
			}
			defer object.Close()
			if n, err := io.Copy(sha256.New(), object); err != nil || n != fileSize {
				return fmt.Errorf("read %s: %d bytes, %w", key, n, err)
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(files) / time.Since(begin).Seconds(), err
}

// list lists the tree as a client does, and returns how long that takes.
func (t *tree) list(ctx context.Context) (time.Duration, error) {
	begin, n := time.Now(), 0
	for o := range t.client.ListObjectsIter(ctx, t.bucket, minio.ListObjectsOptions{Prefix: prefix + "/", Recursive: true}) {
		if o.Err != nil {
			return 0, o.Err
		}
		n++
	}
	if n != t.files {
		return 0, fmt.Errorf("the bucket lists %d files of %d", n, t.files)
	}
	return time.Since(begin), nil
}
