// SPDX-License-Identifier: Apache-2.0

package mirrorjobs

import (
	"context"
	"path/filepath"
	"time"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
	"github.com/substorm/substorm/mirror-jobs/s3"
)

// formerMover returns one to a place that copies were brought to before the MirrorPartner was changed, with the credentials of now.
func formerMover(ctx context.Context, cfg Config, entry wire.MirrorEntry, place push.Place) (push.Mover, error) {
	entry.S3, entry.Rsync = place.S3, place.Rsync
	return newMover(ctx, cfg, entry, "rsync-"+place.Name())
}

// newMover returns the one that an entry asks for, with a scratch folder of its own.
func newMover(ctx context.Context, cfg Config, entry wire.MirrorEntry, scratch string) (push.Mover, error) {
	if s := entry.S3; s != nil {
		config := objectstore.Config{Endpoint: s.Endpoint, Bucket: s.Bucket, Region: s.Region, CredentialsDir: cfg.CredentialsDir}
		if s.TLS != nil {
			config.TLSDir = cfg.CredentialsDir
		}
		store, err := objectstore.Open(config)
		if err != nil {
			return nil, err
		}
		return s3.New(s3.Config{Store: store, Endpoint: s.Endpoint, Bucket: s.Bucket, Prefix: s.Prefix, Connections: entry.Limits.Connections, Moved: paced(ctx, entry.Limits)}), nil
	}
	return rsync.New(rsync.Config{
		MirrorRsync: *entry.Rsync, Credentials: cfg.CredentialsDir, Scratch: filepath.Join(cfg.ScratchDir, scratch),
		BytesPerSecond: func() int64 { return plan.Rate(entry.Limits, time.Now()) },
	})
}
