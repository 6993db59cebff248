// SPDX-License-Identifier: Apache-2.0

//go:build linux

package worker

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// If the disk budget is nearly used up, archived messages are removed before their retention is over; messages that are not archived
// stay, and the archived data stays whole.
func TestTrimForDisk(t *testing.T) {
	l := start(t).site(t, "thule")
	_, dir := testenv.DiskOf(t, 256<<20) // no other process writes there
	budget, err := diskbudget.New(dir, 64<<20, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); budget.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	filler := filepath.Join(dir, "filler")
	fill := func(mebibytes int) {
		t.Helper()
		if err := os.WriteFile(filler, make([]byte, mebibytes<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fill(32)
	cfg := l.config("a")
	cfg.Budget, cfg.TrimInterval = budget, time.Hour
	cfg.Declared = func() ([]wire.InstrumentEntry, bool) { return nil, true }
	l.run(cfg)
	now := time.Now().UTC()
	l.telemetry(mag, now, 5)
	l.await("a segment is archived", func() bool { return len(l.datagrams(mag)) == 5 })
	l.await("its notice is listed", func() bool { return l.state(wire.NoticeStream(l.site)).Msgs == 1 && len(l.listed(mag)) == 1 })
	l.mu.Lock()
	e := l.settings[mag]
	e.SegmentAgeMillis = time.Hour.Milliseconds()
	l.settings[mag] = e
	l.mu.Unlock()
	l.telemetry(mag, now, 3)
	want(t, "messages while there is space", uint64(2), l.state(wire.ObservationStream(l.site)).Msgs)

	fill(62)
	l.await("what is archived goes", func() bool {
		return l.state(wire.ObservationStream(l.site)).FirstSeq == 2 && l.state(wire.NoticeStream(l.site)).Msgs == 0
	})
	l.await("its trims are counted", func() bool { return gauge(t, cfg, "substorm_archivist_trimmed_messages_total") == 2 })
	want(t, "messages that are not archived", uint64(1), l.state(wire.ObservationStream(l.site)).Msgs)
	want(t, "datagrams archived", 5, len(l.datagrams(mag)))
	fill(1)

	l.mu.Lock()
	e.SegmentAgeMillis = 300
	l.settings[mag] = e
	l.mu.Unlock()
	l.await("the rest is archived", func() bool { return len(l.datagrams(mag)) == 8 })
}
