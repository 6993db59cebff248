// SPDX-License-Identifier: Apache-2.0

// Package kvbucket says how the streams behind the key-value buckets of a Site are configured, and removes keys from them.
//
// jetstream.CreateKeyValue allows rollups: one message with the header Nats-Rollup to any key that a user may write then removes all
// other keys of the bucket, whichever users own them. Rights are by key here, so buckets reject such messages, and code that removes a
// key calls Delete or Forget, since Purge is a rollup.
package kvbucket

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// markerTTL is how long the marker of a removed key stays: a watcher of the bucket that was disconnected for less learns of the
	// removal.
	markerTTL = 7 * 24 * time.Hour
	// duplicates is how long NATS remembers the IDs of a bucket's messages.
	duplicates = 2 * time.Minute
)

// Bucket is a key-value bucket: files, and a history of one.
type Bucket struct {
	Name, Description string
	// TTL is how long a key stays; 0: until it is removed.
	TTL      time.Duration
	Replicas int
	// Forgets: keys are removed by Forget.
	Forgets bool
	// Unsynced: a write is acknowledged before it is on the disk, if the bucket has one replica and was made so. A write that a power
	// cut must not take is followed by stream.Sync.
	Unsynced bool
}

// StreamName of the stream that a bucket is.
func StreamName(bucket string) string { return "KV_" + bucket }

// Stream changes in a stream's configuration what is ours to say; of a new one that is all.
func (b Bucket) Stream(cfg jetstream.StreamConfig) jetstream.StreamConfig {
	if b.Unsynced && b.Replicas == 1 && cfg.Name == "" { // JetStream does not allow changing it
		cfg.PersistMode = jetstream.AsyncPersistMode
	}
	cfg.Name, cfg.Description = StreamName(b.Name), b.Description
	cfg.Subjects = []string{"$KV." + b.Name + ".>"}
	cfg.Storage, cfg.Replicas, cfg.MaxAge = jetstream.FileStorage, b.Replicas, b.TTL
	cfg.Retention, cfg.Discard = jetstream.LimitsPolicy, jetstream.DiscardNew
	cfg.MaxMsgs, cfg.MaxBytes, cfg.MaxConsumers, cfg.MaxMsgSize = -1, -1, -1, -1
	cfg.MaxMsgsPerSubject = 1
	cfg.Duplicates = duplicates
	if b.TTL > 0 {
		cfg.Duplicates = min(b.TTL, duplicates)
	}
	cfg.AllowDirect, cfg.DenyDelete = true, true
	cfg.AllowAtomicPublish = cfg.PersistMode != jetstream.AsyncPersistMode // JetStream has no batches without syncs
	cfg.AllowRollup = false
	cfg.AllowMsgTTL = cfg.AllowMsgTTL || b.Forgets // JetStream does not allow undoing it
	return cfg
}

// Forget removes a key. The marker that says so goes after a week, so that nothing stays of names that never come again, as those of
// pods.
func Forget(ctx context.Context, js jetstream.JetStream, bucket, key string) error {
	remove := func(opts ...jetstream.PublishOpt) error {
		m := nats.NewMsg("$KV." + bucket + "." + key)
		m.Header.Set("KV-Operation", "DEL")
		_, err := js.PublishMsg(ctx, m, opts...)
		return err
	}
	err := remove(jetstream.WithMsgTTL(markerTTL))
	const ttlDisabled = 10166
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == ttlDisabled { // the operator has not come to the bucket yet
		err = remove()
	}
	if err != nil {
		return fmt.Errorf("remove %s from bucket %s: %w", key, bucket, err)
	}
	return nil
}
