// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/kvbucket"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// reportPause is between tries to report packs that could not be stored.
const reportPause = time.Second

// failedPacks are packs that may be stored although their senders were not notified: their members
// are elsewhere, or will be sent again. The archivist removes them; without the report it announces
// their members, as those of a pack that a gateway stored before it was killed.
type failedPacks struct {
	mu   sync.Mutex
	keys []string
}

// add notes a pack. The oldest is forgotten if too many could not be reported.
func (f *failedPacks) add(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = wire.FailedPacks{Packs: f.keys}.With(key).Packs
}

func (f *failedPacks) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.keys)
}

// forget forgets packs that were reported.
func (f *failedPacks) forget(keys []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = slices.DeleteFunc(f.keys, func(key string) bool { return slices.Contains(keys, key) })
}

// reportFailedPacks reports packs that could not be stored to the archivist, until ctx ends, and
// then once more.
func (a *Archive) reportFailedPacks(ctx context.Context) {
	said := false
	for goesOn := true; goesOn; {
		goesOn = retry.Sleep(ctx, reportPause)
		keys := a.packers.failed.list()
		if len(keys) == 0 || a.cfg.JetStream == nil {
			continue
		}
		err := a.reportFailed(context.WithoutCancel(ctx), keys)
		if err == nil {
			a.packers.failed.forget(keys)
		} else if !said {
			a.cfg.Logger.Warn("cannot report packs that could not be stored; retrying", "packs", len(keys), "error", err)
		}
		said = err != nil
	}
}

// reportFailed adds packs to those that stand in the status bucket.
func (a *Archive) reportFailed(ctx context.Context, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ShortWait)
	defer cancel()
	status, err := a.statusBucket(ctx)
	if err != nil {
		return err
	}
	key := wire.FailedPacksKey(a.cfg.Gateway)
	cell := stream.NewCell(a.cfg.JetStream, status, key)
	value, err := cell.Load(ctx)
	if err != nil {
		return err
	}
	report := wire.FailedPacks{Gateway: a.cfg.Gateway}
	if value != nil {
		if report, err = wire.DecodeFailedPacks(key, value); err != nil {
			report = wire.FailedPacks{Gateway: a.cfg.Gateway} // an unreadable report is of no use
		}
	}
	if value, err = wire.Encode(report.With(keys...)); err != nil {
		return err
	}
	if err := cell.Store(ctx, value); err != nil {
		return err
	}
	return stream.Sync(ctx, a.cfg.JetStream.Conn(), kvbucket.StreamName(status.Bucket()), cell.Revision()) // it is reported once
}
