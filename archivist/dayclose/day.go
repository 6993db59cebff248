// SPDX-License-Identifier: Apache-2.0

package dayclose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// close writes a day's next version if it is due, and says whether the day is closed.
func (k *kind) close(ctx context.Context, day wire.Day, now, settled time.Time) (bool, error) {
	start, err := day.Start()
	if err != nil {
		return false, err
	}
	if start.AddDate(0, 0, 1).After(settled) {
		return false, nil
	}
	last, written, err := k.lastVersion(ctx, day)
	if err != nil {
		return false, err
	}
	k.versions[day] = last
	if last > 0 && now.Sub(k.changed[day]) < k.cfg.Settle && now.Sub(written) < insist {
		return false, nil
	}
	f := wire.DayFile{Header: wire.DayFileHeader{Kind: k.kind, Site: k.cfg.Site, Day: day, Version: last + 1, ClosedAt: now,
		Writer: k.cfg.Pod, Incarnation: k.cfg.Incarnation}}
	err = stream.Entries(ctx, k.cfg.JetStream, k.kv, k.kind.EntriesOf(day), func(e jetstream.KeyValueEntry) error {
		value := e.Value()
		if !json.Valid(value) { // readers of the day see what it was
			k.cfg.Log.Error("an entry cannot be read and is kept as text", "bucket", k.bucket(), "entry", e.Key())
			var err error
			if value, err = json.Marshal(string(value)); err != nil {
				return err
			}
		}
		f.Entries = append(f.Entries, wire.DayEntry{Key: e.Key(), Value: value})
		return nil
	})
	if err != nil {
		return false, err
	}
	slices.SortFunc(f.Entries, func(a, b wire.DayEntry) int { return strings.Compare(a.Key, b.Key) })
	same, err := k.isUnchanged(ctx, f)
	if err != nil || same {
		return same, err
	}
	return k.write(ctx, f)
}

// lastVersion returns a day's newest version, 0 if it has none, and when it was stored.
func (k *kind) lastVersion(ctx context.Context, day wire.Day) (version int, at time.Time, err error) {
	for info, err := range k.cfg.Store.List(ctx, wire.DayFilePrefix(k.kind, k.cfg.Site, day), "") {
		if err != nil {
			return 0, at, err
		}
		_, _, _, n, err := wire.ParseDayFileKey(info.Key)
		if err != nil {
			k.cfg.Log.Warn("ignoring an unknown object among closed days", "object", info.Key)
			continue
		}
		if n > version {
			version, at = n, info.ModifiedAt
		}
	}
	return version, at, nil
}

// isUnchanged says whether the version before holds the same entries: the cursor was not
// written after it, or an entry was written again as it was.
func (k *kind) isUnchanged(ctx context.Context, f wire.DayFile) (bool, error) {
	if f.Header.Version == 1 {
		return false, nil
	}
	last, err := k.version(ctx, f.Header.Day, f.Header.Version-1)
	if errors.Is(err, wire.ErrMalformed) {
		k.cfg.Log.Error("cannot read a closed day; writing it again as the next version", "kind", k.kind, "day", f.Header.Day, "error", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.EqualFunc(last.Entries, f.Entries, func(a, b wire.DayEntry) bool {
		return a.Key == b.Key && bytes.Equal(a.Value, b.Value)
	}), nil
}

func (k *kind) write(ctx context.Context, f wire.DayFile) (bool, error) {
	data, err := f.Encode()
	if err != nil {
		return false, err
	}
	if err := k.cfg.Lease.Check(); err != nil {
		return false, err
	}
	key := wire.DayFileKey(k.kind, k.cfg.Site, f.Header.Day, f.Header.Version)
	err = k.cfg.Store.Put(ctx, key, bytes.NewReader(data), int64(len(data)), objectstore.PutOptions{ContentType: "application/zstd", CreateOnly: true})
	if errors.Is(err, objectstore.ErrExists) {
		return false, nil // a try of ours, or another's: the next pass compares
	}
	if err != nil {
		return false, err
	}
	k.versions[f.Header.Day] = f.Header.Version
	k.cfg.Metrics.written.WithLabelValues(string(k.kind)).Inc()
	k.cfg.Log.Info("closed a day", "kind", k.kind, "day", f.Header.Day, "version", f.Header.Version, "entries", len(f.Entries))
	return true, nil
}
