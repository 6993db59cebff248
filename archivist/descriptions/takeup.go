// SPDX-License-Identifier: Apache-2.0

package descriptions

import (
	"context"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// maxSize bounds a description that is read, in bytes: messages of NATS are no larger.
const maxSize = 1 << 20

// takeUp learns what is archived, and writes into the key-value bucket what only the object store
// has: everything after the key-value bucket was recreated, otherwise what a kill left between the
// two. It runs once, and again after a failure or if the key-value bucket is another one.
func (r *Archiver) takeUp(ctx context.Context) error {
	name := wire.DescriptionBucket(r.cfg.Site)
	epoch, _, err := stream.Epoch(ctx, r.cfg.JetStream, "KV_"+name)
	if err != nil {
		return err
	}
	if r.known != nil && epoch == r.epoch {
		return nil
	}
	if r.kv, err = r.cfg.JetStream.KeyValue(ctx, name); err != nil {
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	r.known, r.epoch = map[string]*told{}, epoch
	seen := map[string]bool{}
	err = stream.Entries(ctx, r.cfg.JetStream, r.kv, ">", func(e jetstream.KeyValueEntry) error {
		seen[e.Key()] = true
		if err := r.take(e.Key(), e.Value()); err != nil {
			r.complain(e.Key(), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for info, err := range r.cfg.Store.List(ctx, wire.DescriptionSitePrefix(r.cfg.Site), "") {
		if err != nil {
			return err
		}
		key, err := wire.DescriptionEntryKey(info.Key)
		if err != nil {
			r.complain(info.Key, err)
			continue
		}
		if seen[key] {
			continue
		}
		if err := r.restore(ctx, info, key); err != nil {
			return err
		}
	}
	return nil
}

// restore brings one back. A description that cannot be read is left alone.
func (r *Archiver) restore(ctx context.Context, info objectstore.Info, key string) error {
	body, _, err := r.cfg.Store.Get(ctx, info.Key, objectstore.All)
	if err != nil {
		return err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxSize+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", info.Key, err)
	}
	if len(data) > maxSize {
		r.complain(info.Key, fmt.Errorf("it has more than %d bytes: %w", maxSize, wire.ErrMalformed))
		return nil
	}
	if err := r.take(key, data); err != nil {
		r.complain(info.Key, err)
		return nil
	}
	if err := r.putEntry(ctx, key, data); err != nil {
		return err
	}
	r.cfg.Metrics.restored.Inc()
	return nil
}

// take learns the description under a key of the key-value bucket. Descriptions written by a newer
// Substorm, or by something else, are skipped.
func (r *Archiver) take(key string, data []byte) error {
	d, err := wire.Decode[wire.Description](data)
	if err != nil {
		return err
	}
	if is := d.EntryKey(); is != key {
		return fmt.Errorf("its content belongs to %s: %w", is, wire.ErrMalformed)
	}
	says, err := d.Says()
	if err != nil {
		return err
	}
	r.learn(&d, says)
	return nil
}

func (r *Archiver) complain(key string, err error) {
	r.cfg.Metrics.failures.Inc()
	r.cfg.Log.Warn("cannot read a description of an instrument; skipping it", "entry", key, "error", err)
}
