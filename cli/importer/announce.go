// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// queued notices are on their way at most.
	queued = 4096
	// spaceEvery so many notices the stream is asked for its size.
	spaceEvery = 512
	// The stream is filled up to spaceShare of its size: the rest is for gateways,
	// whose receipts wait for their notices.
	spaceShare = 0.75
	// spacePoll is how often a full stream is looked at.
	spacePoll = 5 * time.Second
)

// announcer publishes notices, and counts what the stream took.
type announcer struct {
	committer *stream.Committer
	stream    jetstream.Stream
	report    *report
	done      func(wire.Record)
	fail      context.CancelCauseFunc

	mu    sync.Mutex
	count int
}

func newAnnouncer(ctx context.Context, js jetstream.JetStream, site string, r *report, done func(wire.Record), fail context.CancelCauseFunc) (*announcer, error) {
	name := wire.NoticeStream(site)
	notices, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	committer, err := stream.NewCommitter(js.Conn(), stream.CommitterConfig{Stream: name, MaxMessages: queued, MaxBytes: 16 << 20})
	if err != nil {
		return nil, err
	}
	return &announcer{committer: committer, stream: notices, report: r, done: done, fail: fail}, nil
}

// announce queues a notice. It passes the result to done or to fail.
func (a *announcer) announce(ctx context.Context, n wire.Notice) error {
	if err := a.awaitSpace(ctx); err != nil {
		return err
	}
	m, err := stream.NoticeMessage(n, wire.ImportWriter)
	if err != nil {
		return err
	}
	return a.committer.Submit(ctx, m, func(_ stream.Ack, err error) {
		if err != nil {
			a.fail(fmt.Errorf("announce %s: %w", n.Key, err))
			return
		}
		a.done(n.Record)
	})
}

// awaitSpace holds everybody up while the stream is nearly full.
func (a *announcer) awaitSpace(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
	for told := false; a.count%spaceEvery == 1; told = true {
		info, err := a.stream.Info(ctx)
		if err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		if most := info.Config.MaxBytes; most <= 0 || float64(info.State.Bytes) < spaceShare*float64(most) {
			return nil
		}
		if !told {
			a.report.shown.Say("waiting: %s is three quarters full of notices, and the rest is for gateways. "+
				"It is emptied as its retention passes; see spec.jetStream.notices of the Site", info.Config.Name)
		}
		if !retry.Sleep(ctx, spacePoll) {
			return ctx.Err()
		}
	}
	return nil
}

// close waits for what is on its way.
func (a *announcer) close(ctx context.Context) error { return a.committer.Close(ctx) }
