// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

// partly lists one folder, and says that it cannot list others.
type partly struct{ tree.Source }

func (partly) Walk(_ context.Context, visit func(tree.Folder) error) error {
	err := visit(tree.Folder{Path: "a", Files: []plan.File{{Path: "a/1.txt", Size: 5, Mark: "1"}, {Path: "a/2.txt", Size: 5, Mark: "1"}}})
	return errors.Join(err, fmt.Errorf("%w: permission denied", tree.ErrUnlisted))
}

// Folders that cannot be listed are owed, and the rest is looked at.
func TestUnlistedIsOwed(t *testing.T) {
	t.Parallel()
	progress := &push.Progress{}
	err := tree.Run(t.Context(), tree.Config{
		Site: archivetest.Site, Source: partly{}, JetStream: archivetest.New(t).JetStream, VerifyOnly: true,
		Entry:    wire.MirrorEntry{Partner: "uni", Paths: []wire.MirrorPath{{Pattern: "**", Instrument: archivetest.Camera}}},
		Pause:    func(context.Context) error { return nil },
		Progress: progress, Logger: slog.New(slog.DiscardHandler),
	})
	if !errors.Is(err, push.ErrOwed) || !strings.Contains(err.Error(), `3 files, as "a/1.txt"`) {
		t.Errorf("two files and what cannot be listed are owed: %v", err)
	}
}

// unsized lists other sizes, or none, than it gives for files that are requested; it does not give one of the files.
type unsized struct{ tree.Source }

func (unsized) Walk(_ context.Context, visit func(tree.Folder) error) error {
	return visit(tree.Folder{Path: "a", Files: []plan.File{{Path: "a/1.txt", Size: -1}, {Path: "a/2.txt", Size: 100}, {Path: "a/3.txt", Size: 30}}})
}

func (unsized) Fetch(_ context.Context, _ []tree.Wanted, take func(int, tree.Got) error) error {
	return errors.Join(take(0, tree.Got{Unchanged: true, Size: 70}), take(1, tree.Got{Unchanged: true}), take(2, tree.Got{Err: errors.New("permission denied")}))
}

// The bytes that are owed are those of the files once their sizes are known, and are never negative.
func TestOwedBytes(t *testing.T) {
	t.Parallel()
	progress := &push.Progress{}
	err := tree.Run(t.Context(), tree.Config{
		Site: archivetest.Site, Source: unsized{}, Kind: wire.MirrorScheduled, JetStream: archivetest.New(t).JetStream,
		Entry:    wire.MirrorEntry{Partner: "uni", Paths: []wire.MirrorPath{{Pattern: "**", Instrument: archivetest.Camera}}},
		Pause:    func(context.Context) error { return nil },
		Progress: progress, Logger: slog.New(slog.DiscardHandler),
	})
	progress.Listed()
	if owed := progress.Owed(); !errors.Is(err, push.ErrOwed) || owed.Objects != 1 || owed.Bytes != 30 {
		t.Errorf("%v; %+v, %+v", err, owed, progress.Report())
	}
}

// hollow lists files with and without sizes; three of them are empty.
type hollow struct{ tree.Source }

func (hollow) Walk(_ context.Context, visit func(tree.Folder) error) error {
	return visit(tree.Folder{Path: "a", Files: []plan.File{{Path: "a/0.txt", Size: 0}, {Path: "a/1.txt", Size: -1, Mark: "1"}, {Path: "a/2.txt", Size: -1, Mark: "1"}, {Path: "a/3.txt", Size: 30}}})
}

func (hollow) Fetch(_ context.Context, files []tree.Wanted, take func(int, tree.Got) error) error {
	for i, f := range files {
		got := tree.Got{Unchanged: f.Path == "a/3.txt", Seen: tree.Seen{Mark: f.Mark}}
		if err := take(i, got); err != nil {
			return err
		}
	}
	return nil
}

// Empty files are passed over and counted by each run, whose log says so once: one that has bytes by then comes.
func TestEmptyFiles(t *testing.T) {
	t.Parallel()
	js := archivetest.New(t).JetStream
	for range 2 {
		passEmpty(t, js)
	}
}

func passEmpty(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	progress, log := &push.Progress{}, &strings.Builder{}
	err := tree.Run(t.Context(), tree.Config{
		Site: archivetest.Site, Source: hollow{}, Kind: wire.MirrorScheduled, JetStream: js,
		Entry:    wire.MirrorEntry{Partner: "uni", Paths: []wire.MirrorPath{{Pattern: "**", Instrument: archivetest.Camera}}},
		Pause:    func(context.Context) error { return nil },
		Progress: progress, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	progress.Listed()
	if is := progress.Report(); err != nil || progress.Owed().Objects != 0 || is.Empty != 3 || is.Failed != 0 || is.Objects != 1 {
		t.Errorf("%v; owed %+v, %+v", err, progress.Owed(), is)
	}
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "count=3") {
		t.Errorf("the log: %s", log)
	}
}

// A run writes into no Instrument that has listeners, and does not look at the other side first.
func TestInstrumentWithListeners(t *testing.T) {
	t.Parallel()
	err := tree.Run(t.Context(), tree.Config{
		Site: archivetest.Site, Kind: wire.MirrorScheduled,
		Entry:        wire.MirrorEntry{Partner: "uni", Paths: []wire.MirrorPath{{Pattern: "old/**", Instrument: "old"}, {Pattern: "**", Instrument: archivetest.Camera}}},
		HasListeners: func(instrument string) bool { return instrument == archivetest.Camera },
		Progress:     &push.Progress{}, Logger: slog.New(slog.DiscardHandler),
	})
	var problem *push.Problem
	if !errors.As(err, &problem) || problem.Reason != wire.MirrorReasonHasListeners || !strings.Contains(err.Error(), fmt.Sprintf("%q, which has listeners", archivetest.Camera)) {
		t.Errorf("a run into an Instrument that has listeners: %v", err)
	}
}

// denied lists files that it gives none of, and as many that no pattern fits.
type denied struct {
	tree.Source
	files int
}

func (d denied) Walk(_ context.Context, visit func(tree.Folder) error) error {
	f := tree.Folder{Path: "a"}
	for i := range d.files {
		f.Files = append(f.Files, plan.File{Path: fmt.Sprintf("a/%d.txt", i), Size: 5, Mark: "1"}, plan.File{Path: fmt.Sprintf("a/%d.jpg", i), Size: 5, Mark: "1"})
	}
	return visit(f)
}

func (denied) Fetch(_ context.Context, files []tree.Wanted, take func(int, tree.Got) error) error {
	for i := range files {
		if err := take(i, tree.Got{Err: errors.New("permission denied")}); err != nil {
			return err
		}
	}
	return nil
}

// The log of a run has a line with a count for files that do not come, however many there are.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	log := &strings.Builder{}
	err := tree.Run(t.Context(), tree.Config{
		Site: archivetest.Site, Source: denied{files: 30}, Kind: wire.MirrorScheduled, JetStream: archivetest.New(t).JetStream,
		Entry:    wire.MirrorEntry{Partner: "uni", Paths: []wire.MirrorPath{{Pattern: "**/*.txt", Instrument: archivetest.Camera}}},
		Pause:    func(context.Context) error { return nil },
		Progress: &push.Progress{}, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if !errors.Is(err, push.ErrOwed) || strings.Count(log.String(), "\n") != 2 || strings.Count(log.String(), "count=30") != 2 || !strings.Contains(log.String(), "first.path=a/0.jpg") {
		t.Errorf("%v; the log:\n%s", err, log)
	}
}
