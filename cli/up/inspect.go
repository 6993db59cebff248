// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/substorm/substorm/cli/up/manifests"
)

// This file has what others may ask of a Site that runs, or is to run: `substorm doctor`.

// Declared are the objects that are run: those of files and folders, or, if none is named, of the built-in Site. Errors: what is wrong
// with the files, and that they declare no Site.
func Declared(paths []string, namespace string) ([]*manifests.Object, error) {
	if len(paths) == 0 {
		return emptySite(namespace)
	}
	all, err := manifests.Up.Load(paths, namespace)
	if err == nil && siteOf(all) == nil {
		err = fmt.Errorf("no Site is declared in %s: add one", strings.Join(paths, ", "))
	}
	return all, err
}

// Try applies objects to an API of their own, in a folder that is removed afterwards. Errors: what substorm up would say of them.
func Try(ctx context.Context, objects []*manifests.Object) (err error) {
	dir, err := os.MkdirTemp("", "substorm-try-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &site{cfg: Config{ListenAPI: "127.0.0.1:0"}, folder: &folder{path: dir}, log: slog.New(slog.DiscardHandler), failed: make(chan error, 1)}
	s.redirectLibraryLogs()
	var parts stack
	defer parts.stop()
	if err := s.startAPI(&parts); err != nil {
		return err
	}
	_, err = manifests.Apply(ctx, s.client, objects, s.log)
	return err
}

// ErrHolderUnknown: a process has the data folder, but it is unknown which.
var ErrHolderUnknown = errors.New("its lock names no process")

// Holder is the id of the process that has a data folder, 0 if none has it. Errors: the lock cannot be read; ErrHolderUnknown.
func Holder(path string) (int, error) {
	lock, err := os.Open(filepath.Join(path, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = lock.Close() }()
	// A shared lock: a Site that starts in the moment in which it is held is refused, so it ends at once.
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		return 0, nil
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return 0, fmt.Errorf("%s: %w", lock.Name(), err)
	}
	text, err := io.ReadAll(io.LimitReader(lock, 64))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return 0, ErrHolderUnknown
	}
	return pid, nil
}

// ListenAddresses are where so many FeedServers serve, the first of them at an address.
func ListenAddresses(first string, count int) ([]string, error) {
	l, err := newListeners(first)
	if err != nil {
		return nil, err
	}
	var all []string
	for i := range count {
		all = append(all, l.address(l.port+i))
	}
	return all, nil
}
