// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
)

// sharedBuckets is what the names of all buckets of a shared server begin with; four digits follow.
const sharedBuckets = "test-"

var (
	buckets atomic.Int32
	// sharedMinIO are the servers that the tests of this process share: without TLS, and with it.
	sharedMinIO struct {
		sync.Mutex
		plain, tls *MinIOServer
		ports      []*os.File // hold the ports of both until this process ends
	}
)

// BucketName returns a bucket's name that no other test of the package has.
func BucketName() string { return fmt.Sprintf("%s%04d", sharedBuckets, buckets.Add(1)) }

// SharedMinIO returns the server that the tests of a package share: a server's start costs more processor time than most
// tests. Each test has a bucket of its own there (BucketName). A test that kills or pauses its server starts one with MinIO.
func SharedMinIO(t testing.TB, opts MinIOOptions) *MinIOServer {
	t.Helper()
	if opts.Dir != "" {
		t.Fatal("a shared server has a folder of its own")
	}
	sharedMinIO.Lock()
	defer sharedMinIO.Unlock()
	server := &sharedMinIO.plain
	if opts.TLS {
		server = &sharedMinIO.tls
	}
	if *server == nil {
		*server = startShared(t, opts)
	}
	m := *server
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last of the shared minio's log:\n%s", m.logTail())
		}
	})
	return m
}

// SharedBucket returns a new bucket of the server that the tests of a package share.
func SharedBucket(t testing.TB) objectstore.Store {
	t.Helper()
	return SharedMinIO(t, MinIOOptions{}).Bucket(t, BucketName())
}

func startShared(t testing.TB, opts MinIOOptions) *MinIOServer {
	t.Helper()
	program := Path(t, "minio")
	var last error
	for range 5 { // another process may take the port between the look and the start
		dir := must(os.MkdirTemp("", "substorm-shared-"))(t)
		port, held, err := somePort(firstPort, lastPort)
		if err != nil {
			t.Fatal(err)
		}
		sharedMinIO.ports = append(sharedMinIO.ports, held)
		m := &MinIOServer{port: port}
		argv := m.command(t, program, dir, opts)
		m.Process = &Process{t: t, name: "minio", dir: dir, argv: argv, env: minioEnv(dir), ready: m.answers, shared: true}
		if last = errors.Join(removeAtEnd(dir), m.start()); last == nil {
			return m
		}
		t.Logf("start minio: %v\n%s", last, m.logTail())
	}
	t.Fatalf("minio does not start: %v", last)
	return nil
}

// removers are the shells of removeAtEnd: their standard inputs stay open as long as they are known.
var removers []*exec.Cmd

// removeAtEnd has a shell remove a folder once this process has ended, however it ends: testing has no hook for that
// outside of TestMain. The shell sees the end of its standard input then. Servers of this process are killed with it.
func removeAtEnd(dir string) error {
	shell := exec.Command("/bin/sh", "-c", `read -r _; rm -rf "$1" || { sleep 1; rm -rf "$1"; }`, "sh", dir)
	shell.Dir = filepath.Dir(dir)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it outlives an interrupt on the terminal
	if _, err := shell.StdinPipe(); err != nil {
		return err
	}
	removers = append(removers, shell)
	return shell.Start()
}
