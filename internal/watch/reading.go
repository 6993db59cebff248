// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
)

// behindPause is between two questions of the leader while the replica that answers catches up.
const behindPause = 250 * time.Millisecond

// reading is how far one bucket was read.
type reading struct {
	js  jetstream.JetStream
	cfg *Config
	// began: all came that the replica had at the beginning.
	began bool
	// seen is the last revision that came, and held the leader's when it was asked.
	seen, held  uint64
	asked, told bool
	// again is when the leader is asked again: its last message may be gone, or it did not answer.
	again <-chan time.Time
	said  string
}

// take hands an entry on; nil is the end of what the replica had at the beginning.
func (r *reading) take(ctx context.Context, e jetstream.KeyValueEntry) {
	if e == nil {
		r.began = true
		r.cfg.Settle()
		r.ask(ctx)
		return
	}
	r.cfg.Take(e)
	if r.began {
		r.cfg.Settle()
	}
	r.seen = e.Revision()
	r.tell()
}

// ask asks the leader what it holds.
func (r *reading) ask(ctx context.Context) {
	if r.cfg.Newest == nil {
		return
	}
	held, err := stream.LastOf(ctx, r.js, "KV_"+r.cfg.Bucket, "$KV."+r.cfg.Bucket+".>")
	if err != nil {
		r.again = time.After(retryPause)
		if err.Error() != r.said && ctx.Err() == nil {
			r.said = err.Error()
			r.cfg.Logger.Warn("cannot confirm that the newest state of "+r.cfg.What+" was read; asking the leader of its bucket again", "error", err)
		}
		return
	}
	r.again, r.held, r.asked = time.After(behindPause), held, true
	r.tell()
}

// tell says once that all was settled that the leader held.
func (r *reading) tell() {
	if !r.asked || r.told || r.seen < r.held {
		return
	}
	r.told, r.again = true, nil
	r.cfg.Newest()
}
