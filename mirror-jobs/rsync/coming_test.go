// SPDX-License-Identifier: Apache-2.0

package rsync_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

// TestComing: the bytes of a large file count while it comes. It comes slowly, and is not waited for.
func TestComing(t *testing.T) {
	address, dir := testenv.RsyncDaemon(t, "")
	const size = 64 << 20
	if err := os.WriteFile(filepath.Join(dir, "large ö.bin"), make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
	mover, err := rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: address, Module: "data"}}, Scratch: t.TempDir(),
		BytesPerSecond: func() int64 { return 256 << 10 }})
	if err != nil {
		t.Fatal(err)
	}
	progress := &push.Progress{}
	progress.Owe(size)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		wanted := []tree.Wanted{{File: plan.File{Path: "large ö.bin", Size: size}, Moving: progress.Begin(size)}}
		ended <- rsync.Source{Mover: mover}.Fetch(ctx, wanted, func(int, tree.Got) error { return errors.New("it is whole") })
	}()
	for progress.Report().Bytes == 0 {
		select {
		case err := <-ended:
			t.Fatalf("it ended before anything counted: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	if bytes := progress.Report().Bytes; bytes >= size {
		t.Errorf("%d bytes count", bytes)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
