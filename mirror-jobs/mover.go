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

// newMover returns the one that an entry asks for.
func newMover(ctx context.Context, cfg Config, entry wire.MirrorEntry) (push.Mover, error) {
	if s := entry.S3; s != nil {
		config := objectstore.Config{Endpoint: s.Endpoint, Bucket: s.Bucket, Region: s.Region, CredentialsDir: cfg.CredentialsDir}
		if s.TLS != nil {
			config.TLSDir = cfg.CredentialsDir
		}
		store, err := objectstore.Open(config)
		if err != nil {
			return nil, err
		}
		return s3.New(s3.Config{Store: store, Bucket: s.Bucket, Prefix: s.Prefix, Connections: entry.Limits.Connections, Moved: paced(ctx, entry.Limits)}), nil
	}
	return rsync.New(rsync.Config{
		MirrorRsync: *entry.Rsync, Credentials: cfg.CredentialsDir, Scratch: filepath.Join(cfg.ScratchDir, "rsync"),
		BytesPerSecond: func() int64 { return plan.Rate(entry.Limits, time.Now()) },
	})
}
