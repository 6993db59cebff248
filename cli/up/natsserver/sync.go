// SPDX-License-Identifier: Apache-2.0

package natsserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/durable"
	"github.com/substorm/substorm/internal/retry"
)

// syncs is what is known of the files of streams.
type syncs struct {
	mu sync.Mutex
	// synced are files of streams, by path, as they were when they were last synced.
	synced map[string]file
	// tails are of the newest block of each folder.
	tails map[string]*tail
}

const (
	// flushPause is between looks whether the server has written a message to its file: it does within 8 ms.
	flushPause = time.Millisecond
	// flushTimeout is how long is looked: a disk that is full takes nothing.
	flushTimeout = 10 * time.Second
)

// SyncStream returns once the disk has the message of a sequence of a stream, and all before it. It does nothing for streams without
// persist_mode async, whose messages are synced one by one. Sequence 0 syncs what the stream is, and what it has by now. The message must have been acknowledged, and be the last of its subject where
// the stream keeps one of each.
func (s *Server) SyncStream(ctx context.Context, name string, sequence uint64) error {
	s.syncs.mu.Lock()
	defer s.syncs.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	dirs, err := filepath.Glob(filepath.Join(s.opts.StoreDir, "jetstream", "*", "streams", name))
	for _, dir := range dirs { // of one account
		err = errors.Join(err, s.syncs.syncStream(ctx, dir, sequence))
	}
	if err != nil {
		return fmt.Errorf("sync stream %s of the embedded NATS server: %w", name, err)
	}
	return nil
}

func (s *syncs) syncStream(ctx context.Context, dir string, sequence uint64) error {
	if async, err := isAsync(dir); err != nil || !async {
		return err
	}
	delete(s.tails, filepath.Join(dir, messages)) // since the last look the server may have rewritten a block, with records at other places
	for {
		written, err := s.written(filepath.Join(dir, messages))
		if err != nil {
			return err
		}
		if written >= sequence {
			return s.syncFiles(dir)
		}
		if !retry.Sleep(ctx, flushPause) {
			return fmt.Errorf("message %d is not written yet, but %d: %w", sequence, written, ctx.Err())
		}
	}
}

// isAsync reads a stream's configuration where the server keeps it.
func isAsync(dir string) (bool, error) {
	text, err := os.ReadFile(filepath.Join(dir, configuration))
	if err != nil {
		return false, err
	}
	var config struct {
		PersistMode string `json:"persist_mode"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return false, fmt.Errorf("%s: %w", filepath.Join(dir, configuration), err)
	}
	return config.PersistMode == "async", nil
}

// written is the highest sequence that the files of a folder have.
func (s *syncs) written(dir string) (uint64, error) {
	blocks, err := blocksOf(dir)
	if err != nil {
		return 0, err
	}
	if s.tails == nil {
		s.tails = map[string]*tail{}
	}
	if s.tails[dir] == nil {
		s.tails[dir] = &tail{}
	}
	t := s.tails[dir]
	for _, path := range newest(blocks) { // the newest may have none yet
		if err := t.read(path, blocks[path].size); err != nil {
			*t = tail{} // a block is rewritten when most of it was removed
			return 0, err
		}
		if t.highest > 0 {
			break
		}
	}
	return t.highest, nil
}

// syncFiles syncs the blocks and the configuration of a stream, as far as they changed since, and the folders that have new ones.
func (s *syncs) syncFiles(dir string) error {
	files, err := filesOf(dir)
	if err != nil {
		return err
	}
	created := map[string]bool{}
	for path, f := range files {
		before, known := s.synced[path]
		created[filepath.Dir(path)] = created[filepath.Dir(path)] || !known
		if f == before {
			continue
		}
		if err := syncFile(path); err != nil {
			return err
		}
	}
	if created[dir] { // the stream is new itself
		created[filepath.Dir(dir)], created[filepath.Dir(filepath.Dir(dir))] = true, true
	}
	for folder, has := range created {
		if !has {
			continue
		}
		if err := durable.SyncFolder(folder); err != nil {
			return err
		}
	}
	if s.synced == nil {
		s.synced = map[string]file{}
	}
	for path := range s.synced {
		if _, known := files[path]; !known && strings.HasPrefix(path, dir+string(filepath.Separator)) {
			delete(s.synced, path)
		}
	}
	maps.Copy(s.synced, files)
	return nil
}

// syncFile syncs a file, whichever process wrote it. A file that is gone has nothing to lose.
func syncFile(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
