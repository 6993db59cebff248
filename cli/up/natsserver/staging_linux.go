// SPDX-License-Identifier: Apache-2.0

package natsserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/kvbucket"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// memoryDir is a file system in memory.
	memoryDir     = "/dev/shm"
	stagingPrefix = "substorm-batches-"
	// batchesDir is the folder of a stream in which the server stages atomic batches.
	batchesDir = "batches"
)

// staging is a folder in memory, in which the server stages the batches of those streams whose publishers send again what was not
// acknowledged: on the disk a staged batch costs five synced writes, and all of its bytes once more. Staged batches still do what the
// server needs them for: if it is killed in the middle of a batch, the batch is stored as a whole. A power cut may leave a part of such a
// batch, which was not acknowledged. Its messages are stored by themselves, and synced as always.
type staging struct {
	mu sync.Mutex
	// memory and batches are memoryDir and batchesDir.
	memory, batches string
	// root is in memoryDir, and dir in root, whose name no one else can read. Both are empty if memory is not available.
	root, dir string
	lock      *os.File
	// off: memory is not available, or the server was stopped.
	off bool
}

func newStaging() staging { return staging{memory: memoryDir, batches: batchesDir} }

// stagedStreams are those whose publishers are all Committers of internal/stream.
func stagedStreams(site string) []string {
	return []string{wire.ObservationStream(site), wire.NoticeStream(site), kvbucket.StreamName(wire.LedgerBucket(site))}
}

// MinBatch is from how many messages on a batch costs fewer synced writes than they do one by one; 0: it is not known.
func (s *Server) MinBatch() int {
	s.staging.mu.Lock()
	defer s.staging.mu.Unlock()
	if s.staging.dir == "" {
		return 0
	}
	return 2
}

// stage has streams stage their batches in memory, including streams that were made since. If it fails, batches are staged on the disk.
func (s *Server) stage(ctx context.Context) {
	g := &s.staging
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.off {
		return
	}
	if err := g.make(ctx); err != nil {
		g.off = true
		s.log.log.Warn("batches of messages are staged on the disk, which writes more", "error", err)
		return
	}
	for _, name := range stagedStreams(s.domain) {
		dirs, err := streamDirs(s.opts.StoreDir, name)
		for _, dir := range dirs {
			err = errors.Join(err, link(filepath.Join(dir, g.batches), filepath.Join(g.dir, name)))
		}
		if err != nil { // a batch is under way, say
			s.log.log.Debug("batches are staged on the disk", "stream", name, "error", err)
		}
	}
}

// streamDirs are the folders that a server has for a stream, one in each account.
func streamDirs(storeDir, name string) ([]string, error) {
	return filepath.Glob(filepath.Join(storeDir, server.JetStreamStoreDir, "*", "streams", name))
}

// make makes the folder, unless there is one, and removes those of processes that were killed. It errs where the server does not stage
// batches where they are expected.
func (g *staging) make(ctx context.Context) (err error) {
	if g.dir != "" {
		return nil
	}
	removeLeft(g.memory)
	if g.root, err = os.MkdirTemp(g.memory, stagingPrefix); err != nil {
		return err
	}
	if g.lock, err = lockIn(g.root); err == nil {
		err = tryLayout(ctx, filepath.Join(g.root, "try"), g.batches)
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(g.root))
		if g.lock != nil {
			err = errors.Join(err, g.lock.Close())
		}
		return err
	}
	g.dir, err = os.MkdirTemp(g.root, "")
	return err
}

const lockName = "lock"

// lockIn makes a locked file, which has its name once it is locked.
func lockIn(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), os.Rename(f.Name(), filepath.Join(dir, lockName))); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeLeft removes the folders of processes that were killed.
func removeLeft(memory string) {
	roots, _ := filepath.Glob(filepath.Join(memory, stagingPrefix+"*", lockName))
	for _, path := range roots {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0) // others may write into the memory's folder, too
		if err != nil {
			continue // it is another user's
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		_ = f.Close()
	}
}

// link makes path lead to a folder in memory, which it makes. It errs where path is a folder that has something in it.
func link(path, target string) error {
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	if at, err := os.Readlink(path); err == nil && at == target {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(target, path)
}

// unstage removes the folder in memory.
func (s *Server) unstage() {
	g := &s.staging
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.off = true; g.dir == "" {
		return
	}
	_ = errors.Join(os.RemoveAll(g.root), g.lock.Close())
	g.dir = ""
}
