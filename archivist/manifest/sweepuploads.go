// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/substorm/substorm/archivist/deletion"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// uploadFiles are the files of one upload by tus.
type uploadFiles struct {
	prefix, info string
	// newest is when the last of them was stored.
	newest time.Time
}

// maxUploadInfo bounds what is read of an upload's info, in bytes.
const maxUploadInfo = 64 << 10

// removeUploads removes uploads to which nothing came for as long as they are kept.
func (s *Sweeper) removeUploads(ctx context.Context, now time.Time) error {
	var of uploadFiles
	for info, err := range s.cfg.Store.List(ctx, wire.StagingPrefix(s.cfg.Site), "") {
		if err != nil {
			return err
		}
		file, ok := wire.ParseUploadKey(info.Key)
		if !ok {
			continue
		}
		if file.Prefix != of.prefix {
			if err := s.removeUpload(ctx, of, now); err != nil {
				return err
			}
			of = uploadFiles{prefix: file.Prefix, info: wire.UploadInfoKey(s.cfg.Site, file.Instrument, file.ID)}
		}
		if info.ModifiedAt.After(of.newest) {
			of.newest = info.ModifiedAt
		}
	}
	return s.removeUpload(ctx, of, now)
}

func (s *Sweeper) removeUpload(ctx context.Context, of uploadFiles, now time.Time) error {
	if of.prefix == "" {
		return nil
	}
	expiry, err := s.uploadExpiry(ctx, of.info)
	if err != nil || now.Before(of.newest.Add(expiry)) {
		return err
	}
	all := true
	for info, err := range s.cfg.Store.List(ctx, of.prefix, "") {
		if err != nil {
			return err
		}
		o := deletion.Object{Key: info.Key, Reason: wire.DeletedUpload, KeptUntil: of.newest.Add(expiry)}
		gone, err := s.remove(ctx, now, o)
		if err != nil {
			return err
		}
		if all = all && gone; gone {
			s.cfg.Metrics.found.WithLabelValues(findingStaging).Inc()
		}
	}
	if all {
		s.cfg.Log.Info("removed an abandoned upload", "upload", of.prefix, "last", of.newest)
	}
	return nil
}

// uploadExpiry returns how long an upload is kept after its last byte.
func (s *Sweeper) uploadExpiry(ctx context.Context, key string) (time.Duration, error) {
	body, _, err := s.cfg.Store.Get(ctx, key, objectstore.All)
	if errors.Is(err, objectstore.ErrNotFound) {
		return leftoverAge, nil // it was terminated, or is about to be created
	}
	if err != nil {
		return 0, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxUploadInfo))
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", key, err)
	}
	info, err := wire.Decode[wire.UploadInfo](data)
	if err != nil {
		s.cfg.Log.Warn("an upload cannot be read, and is kept as long as other leftovers", "upload", key, "error", err)
		return leftoverAge, nil
	}
	return time.Duration(info.ExpiryMillis) * time.Millisecond, nil
}
