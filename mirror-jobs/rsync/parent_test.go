// SPDX-License-Identifier: Apache-2.0

//go:build linux

package rsync_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/rsync"
)

// scratchOfKilled names the folder of a mover that is a process of its own, to be killed.
const scratchOfKilled = "SUBSTORM_TEST_KILLED_MOVER"

func TestMain(m *testing.M) {
	if scratch := os.Getenv(scratchOfKilled); scratch != "" {
		moveForEver(scratch)
	}
	os.Exit(m.Run())
}

// moveForEver runs a program in place of rsync that names its process in a pipe and does not end.
func moveForEver(scratch string) {
	m, err := rsync.New(rsync.Config{MirrorRsync: wire.MirrorRsync{Daemon: &wire.MirrorRsyncDaemon{Address: "127.0.0.1:1", Module: "data"}},
		Scratch: filepath.Join(scratch, "mover"), Program: filepath.Join(scratch, "rsync")})
	if err == nil {
		_, err = m.Has(context.Background(), []string{"a.txt"})
	}
	panic(err)
}

// rsync ends with a mover that is killed.
func TestEndsWithParent(t *testing.T) {
	t.Parallel()
	scratch := t.TempDir()
	pipe := filepath.Join(scratch, "pid")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.WriteFile(filepath.Join(scratch, "rsync"), []byte("#!/bin/sh\necho $$ > "+pipe+"\nexec sleep 86400\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	mover := exec.Command(os.Args[0])
	mover.Env = append(os.Environ(), scratchOfKilled+"="+scratch)
	if err := mover.Start(); err != nil {
		t.Fatal(err)
	}
	named, err := os.ReadFile(pipe)
	pid, numberErr := strconv.Atoi(strings.TrimSpace(string(named)))
	if err := errors.Join(err, numberErr); err != nil {
		t.Fatal(err)
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	t.Cleanup(func() { _ = unix.PidfdSendSignal(process, syscall.SIGKILL, nil, 0) })
	if err := mover.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = mover.Wait() // it was killed
	ended := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(ended, 60_000)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n == 0:
			t.Errorf("rsync goes on a minute after its mover was killed: %d, %v", n, err)
		}
		return
	}
}
