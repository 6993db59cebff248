// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

// Files whose names no object can have do not come: a run counts them, its log says once how many, and names each at level debug. The
// others are looked at.
func TestNamesOfNoObject(t *testing.T) {
	t.Parallel()
	s, dir := sourceOf(t, 0)
	bad := []string{"a/caf\xe9.txt", "a/two\nlines.txt", "a/back\\slash.txt", "b\x01/x.txt", strings.Repeat("x", wire.MaxSentName+1)}
	writeAll(t, dir, append(bad, "a/1.txt", "b/2.txt", "ü.txt")...)
	progress, log := &push.Progress{}, &strings.Builder{}
	err := tree.Run(t.Context(), tree.Config{
		Site: archivetest.Site, Source: s, JetStream: archivetest.New(t).JetStream, VerifyOnly: true,
		Entry:    wire.MirrorEntry{Partner: "uni", Paths: []wire.MirrorPath{{Pattern: "**", Instrument: archivetest.Camera}}},
		Pause:    func(context.Context) error { return nil },
		Progress: progress, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err == nil || !strings.Contains(err.Error(), "3 files") {
		t.Errorf("three files have names that objects can have: %v", err)
	}
	if is := progress.Report(); is.BadNames != int64(len(bad)) || is.Quarantined != 0 {
		t.Errorf("%d files have names that no object can have: %+v", len(bad), is)
	}
	const message = "skipping files and folders whose names no object can have"
	named, counted := 0, 0
	for line := range strings.Lines(log.String()) {
		switch {
		case !strings.Contains(line, message):
		case strings.Contains(line, "level=DEBUG"):
			named++
		case strings.Contains(line, "level=WARN") && strings.Contains(line, "count=5 "):
			counted++
		}
	}
	if named != len(bad) || counted != 1 {
		t.Errorf("the log names %d of %d files, and counts %d times:\n%s", named, len(bad), counted, log)
	}
}
