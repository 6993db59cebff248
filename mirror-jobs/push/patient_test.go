// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// breaking is the object store behind a connection that breaks in the middle of an answer, and then does not come up at once, as often as it may.
type breaking struct {
	objectstore.Store
	breaks atomic.Int64
}

var errBroken = fmt.Errorf("%w: the connection broke", objectstore.ErrUnavailable)

func (b *breaking) Get(ctx context.Context, key string, r objectstore.Range) (io.ReadCloser, objectstore.Info, error) {
	left := b.breaks.Add(-1)
	if left >= 0 && left%2 == 0 {
		return nil, objectstore.Info{}, errBroken
	}
	body, info, err := b.Store.Get(ctx, key, r)
	if err != nil || left < 0 {
		return body, info, err
	}
	return &broken{body, 1}, info, nil
}

// broken gives one byte of a body.
type broken struct {
	io.ReadCloser
	left int
}

func (b *broken) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errBroken
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// A run waits for an object store that goes away for a moment, and continues behind the last byte that came; one that stays away ends it.
// The same is true of objects of their own, of those in packs, and of either partner.
func TestStoreGoesAway(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]func(*lab){"rsync": func(l *lab) { l.toDaemon("") }, "s3": (*lab).toBucket} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			to(l)
			want := map[string]string{}
			for i := range 3 {
				text := fmt.Sprint(strings.Repeat("0123456789", i+1), i)
				want[fmt.Sprintf("allsky-1/%d.jpg", i)] = text
				l.Wait(l.Put(archivetest.Camera, fmt.Sprintf("%d.jpg", i), text, at(storm.Add(time.Duration(i)*time.Second))))
			}
			store := &breaking{Store: l.Store}
			l.Store = store
			store.breaks.Store(1 << 40)
			l.patience = 300 * time.Millisecond
			err := l.run()
			var p *push.Problem
			if !errors.Is(err, objectstore.ErrUnavailable) || errors.As(err, &p) && p.Reason != wire.MirrorReasonStore {
				t.Errorf("a run whose store stays away: %v", err)
			}
			store.breaks.Store(8)
			l.patience = 0
			l.push(3)
			if left := store.breaks.Load(); left > -3 {
				t.Errorf("the store broke, %d are left: it was asked too rarely", left)
			}
			l.want("all", want)
		})
	}
}
