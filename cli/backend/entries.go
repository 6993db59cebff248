// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/substorm/substorm/internal/retry"
)

// Limits of one request that Entries makes.
const (
	entriesBatch = 1000
	entriesBytes = 8 << 20
	// entriesPatience bounds how long the bucket may have no server, and entriesPause is the pause between two tries.
	entriesPatience = 5 * time.Second
	entriesPause    = 100 * time.Millisecond
)

// Entry is an entry of a bucket; Data is its value, Sequence its revision.
type Entry struct {
	Key string
	*jetstream.RawStreamMsg
}

// Entries calls f for each entry of a bucket whose key matches, in the order in which they were last written. It makes no
// consumer, as a watch would: in the account of commands there are none.
func Entries(ctx context.Context, js jetstream.JetStream, bucket, match string, f func(Entry) error) error {
	if _, err := js.KeyValue(ctx, bucket); errors.Is(err, jetstream.ErrBucketNotFound) {
		return fmt.Errorf("NATS has no bucket %s: is the Site ready? See substorm status", bucket)
	} else if err != nil {
		return fmt.Errorf("bucket %s: %w", bucket, err)
	}
	last := map[string]Entry{}
	patience, cancel := context.WithTimeout(ctx, entriesPatience)
	defer cancel()
	for from, more := uint64(1), true; more; {
		next, hasMore, err := readEntries(ctx, js, bucket, match, from, last)
		switch {
		case errors.Is(err, nats.ErrNoResponders): // a bucket that has just been made, or whose server has just started
			if !retry.Sleep(patience, entriesPause) {
				return fmt.Errorf("read bucket %s: %w: %w", bucket, errSilent, err)
			}
		case err != nil:
			return fmt.Errorf("read bucket %s: %w", bucket, err)
		default:
			from, more = next, hasMore
		}
	}
	for _, e := range slices.SortedFunc(maps.Values(last), func(a, b Entry) int { return cmp.Compare(a.Sequence, b.Sequence) }) {
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}

// errSilent: a batch ends without an error where the time of a request is over.
var errSilent = errors.New("NATS does not answer: see that its servers run and are not overloaded, and try again")

// readEntries reads one batch of a bucket's messages into last. It returns the sequence behind the batch, and false where
// no message lies behind from.
func readEntries(ctx context.Context, js jetstream.JetStream, bucket, match string, from uint64, last map[string]Entry) (uint64, bool, error) {
	prefix, next := "$KV."+bucket+".", from
	batch, err := jetstreamext.GetBatch(ctx, js, "KV_"+bucket, entriesBatch, jetstreamext.GetBatchSeq(from),
		jetstreamext.GetBatchSubject(prefix+match), jetstreamext.GetBatchMaxBytes(entriesBytes))
	if err != nil {
		return 0, false, err
	}
	for m, err := range batch {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			return from, false, nil
		}
		if err != nil {
			return 0, false, err
		}
		next = m.Sequence + 1
		key := strings.TrimPrefix(m.Subject, prefix)
		if m.Header.Get("KV-Operation") != "" || m.Header.Get(jetstream.MarkerReasonHeader) != "" { // deleted
			delete(last, key)
		} else {
			last[key] = Entry{key, m}
		}
	}
	if next == from {
		return 0, false, errors.Join(errSilent, ctx.Err())
	}
	return next, true, nil
}
