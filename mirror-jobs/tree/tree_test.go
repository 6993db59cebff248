// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

// partly lists one folder, and says that it cannot list others.
type partly struct{ tree.Source }

func (partly) Walk(_ context.Context, visit func(tree.Folder) error) error {
	err := visit(tree.Folder{Path: "a", Files: []plan.File{{Path: "a/1.txt", Mark: "1"}, {Path: "a/2.txt", Mark: "1"}}})
	return errors.Join(err, fmt.Errorf("%w: permission denied", tree.ErrUnlisted))
}

// What cannot be listed is owed, and the rest is looked at.
func TestUnlistedIsOwed(t *testing.T) {
	t.Parallel()
	progress := &push.Progress{}
	err := tree.Run(t.Context(), tree.Config{
		Site: archivetest.Site, Source: partly{}, JetStream: archivetest.New(t).JetStream, VerifyOnly: true,
		Entry:    wire.MirrorEntry{Partner: "uni", Paths: []wire.MirrorPath{{Pattern: "**", Instrument: archivetest.Camera}}},
		Pause:    func(context.Context) error { return nil },
		Progress: progress, Logger: slog.New(slog.DiscardHandler),
	})
	if !errors.Is(err, push.ErrOwed) || !strings.Contains(err.Error(), "3 files") {
		t.Errorf("two files and what cannot be listed are owed: %v", err)
	}
}
