// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// fillNotices makes the notice stream small and sends objects until it is full.
// It returns how many it took.
func (l *lab) fillNotices(at time.Time) int {
	l.t.Helper()
	s, err := l.js.Stream(l.t.Context(), wire.NoticeStream(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	small := s.CachedInfo().Config
	small.MaxBytes = 20 << 10
	if _, err := l.js.UpdateStream(l.t.Context(), small); err != nil {
		l.t.Fatal(err)
	}
	for taken := range 1000 {
		o := object{at.Add(time.Duration(taken) * time.Millisecond), fmt.Sprint("frame ", taken)}
		m, err := stream.NoticeMessage(l.notice(camera, o), "gateway-0")
		if err != nil {
			l.t.Fatal(err)
		}
		if _, err := l.js.PublishMsg(l.t.Context(), m); err != nil {
			return taken
		}
		l.putObject(camera, o)
	}
	l.t.Fatal("the notice stream took a thousand notices and is not full")
	return 0
}

func (l *lab) firstNotice() uint64 {
	l.t.Helper()
	_, state, err := stream.Epoch(l.t.Context(), l.js, wire.NoticeStream(l.site))
	if err != nil {
		l.t.Fatal(err)
	}
	return state.FirstSeq
}

// A segment that cannot be announced because the notice stream is full ends nothing: the other work
// under the lease makes space, and then it is announced.
func TestFullNotices(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	taken := l.fillNotices(now)
	l.telemetry(mag, now, 5)

	// Nothing is listed, and so nothing can be trimmed, before a cut was refused.
	listing := make(chan struct{})
	list := sync.OnceFunc(func() { close(listing) })
	cfg := l.config("a")
	cfg.Store = beforeFirstPart{l.store, new(sync.Once), func() { <-listing }}
	cfg.TrimInterval = 2 * time.Second
	l.run(cfg)
	t.Cleanup(list)
	l.await("a segment's notice is refused", func() bool { return gauge(t, cfg, "substorm_segment_refused_requests_total") > 0 })
	want(t, "notices trimmed before they are listed", 1, l.firstNotice())
	list()
	l.await("the segment is archived", func() bool { return cmp.Equal(numbers(1, 5), l.datagrams(mag)) })
	l.await("the ledger counts it", func() bool { return l.ledger(mag, wire.DayOf(now), wire.StepStored).Datagrams == 5 })
	want(t, "objects listed", taken, len(l.listed(camera)))
	want(t, "times that the lease was given up", 0.0, gauge(t, cfg, "substorm_archivist_failures_total"))
}

// An archivist trims as it begins: its lease may not last an interval.
func TestTrimAtTheBeginning(t *testing.T) {
	l := start(t).site(t, "thule")
	now := time.Now().UTC()
	cfg := l.config("a")
	cfg.TrimInterval = time.Hour
	stop := l.run(cfg)
	l.await("the archivist works", func() bool { return l.holder() == "a" })
	taken := l.fillNotices(now)
	l.await("all is listed", func() bool { return len(l.listed(camera)) == taken })
	stop()
	want(t, "first notice", 1, l.firstNotice())

	cfg = l.config("b")
	cfg.TrimInterval = time.Hour
	l.run(cfg)
	l.await("there is space", func() bool { return l.firstNotice() > 1 })
}
