// SPDX-License-Identifier: Apache-2.0

package liar

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// The ways in which a server of rsync lies, beside Portal and Cut.
const (
	// KeepsNothing takes everything, and has nothing of it when it is asked again.
	KeepsNothing Mode = "keeps nothing"
	// Truncates takes the last byte of each file that it has, and Alters changes it, once a client has gone. Their times stay.
	Truncates Mode = "truncates"
	Alters    Mode = "alters"
	// Restores has again, once a client has gone, what that removed.
	Restores Mode = "restores"
	// Hangup closes the connection once a client has named the module, and Garbage sends what makes no sense then.
	Hangup  Mode = "hangup"
	Garbage Mode = "garbage"
)

// RsyncModes are those of an Rsync.
var RsyncModes = []Mode{Portal, Cut, KeepsNothing, Truncates, Alters, Hangup, Garbage}

// cutAfter is how many bytes of a client come through before the connection is cut.
const cutAfter = 64 << 10

// Rsync is a server of Debian's rsync with a module "data". It serves one client after another.
type Rsync struct {
	// Address of it, and Dir the folder of the module.
	Address, Dir string

	t       testing.TB
	program string
	config  string
	mode    atomic.Pointer[Mode]
}

// Set has it lie in another way from the next connection on.
func (s *Rsync) Set(m Mode) { s.mode.Store(&m) }

// NewRsync starts one. It skips the test where rsync is not installed, but not in CI.
func NewRsync(t testing.TB) *Rsync {
	t.Helper()
	program, err := exec.LookPath("rsync")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("rsync is not installed")
		}
		t.Skip("install rsync")
	}
	here := t.TempDir()
	s := &Rsync{Dir: filepath.Join(here, "partner"), t: t, program: program, config: filepath.Join(here, "rsyncd.conf")}
	s.Set("")
	text := fmt.Sprintf("use chroot = no\nuid = %d\ngid = %d\n[data]\npath = %s\nread only = no\n", os.Getuid(), os.Getgid(), s.Dir)
	if err := errors.Join(os.Mkdir(s.Dir, 0o755), os.WriteFile(s.config, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Address = listener.Addr().String()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if err := s.serve(*s.mode.Load(), conn.(*net.TCPConn)); err != nil {
				t.Errorf("rsync: %v", err)
			}
		}
	}()
	t.Cleanup(func() { listener.Close(); <-ended })
	return s
}

func (s *Rsync) serve(mode Mode, conn *net.TCPConn) error {
	defer conn.Close()
	switch mode {
	case Portal:
		_, _ = io.WriteString(conn, Page)
		return nil
	case Hangup, Garbage:
		s.greet(mode, conn)
		return nil
	case Cut:
		return s.cut(conn)
	}
	before, err := s.files()
	if err == nil {
		err = s.honest(conn)
	}
	if err != nil {
		return err
	}
	switch mode {
	case Restores:
		for path, data := range before {
			if err := os.WriteFile(path, data, 0o644); err != nil {
				return err
			}
		}
	case KeepsNothing:
		return errors.Join(os.RemoveAll(s.Dir), os.Mkdir(s.Dir, 0o755))
	case Truncates, Alters:
		return s.spoil(mode)
	}
	return nil
}

// honest has rsync serve a connection, as inetd does.
func (s *Rsync) honest(conn *net.TCPConn) error {
	file, err := conn.File()
	if err != nil {
		return err
	}
	defer file.Close()
	daemon := exec.CommandContext(s.t.Context(), s.program, "--daemon", "--config="+s.config, "--log-file=/dev/null")
	daemon.Stdin, daemon.Stdout = file, file
	_ = daemon.Run() // clients may go away, or be cut off
	return nil
}

// greet lets a client name the module.
func (s *Rsync) greet(mode Mode, conn net.Conn) {
	_, _ = io.WriteString(conn, "@RSYNCD: 31.0 md5\n")
	in := bufio.NewReader(conn)
	for range 2 {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
	}
	_, _ = io.WriteString(conn, "@RSYNCD: OK\n")
	if mode == Garbage {
		for sum, n := sha256.Sum256(nil), 0; n < 1000; sum, n = sha256.Sum256(sum[:]), n+1 {
			if _, err := conn.Write(sum[:]); err != nil {
				return
			}
		}
		_, _ = io.Copy(io.Discard, in) // a client that cannot write has lost its connection, and does not say what came
	}
}

// cut lets the beginning of what a client sends come through.
func (s *Rsync) cut(conn net.Conn) error {
	behind, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer behind.Close()
	to, err := net.Dial("tcp", behind.Addr().String())
	if err != nil {
		return err
	}
	defer to.Close()
	from, err := behind.Accept()
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() {
		defer from.Close()
		served <- s.honest(from.(*net.TCPConn))
	}()
	go func() { _, _ = io.Copy(conn, to) }()
	_, _ = io.CopyN(to, conn, cutAfter)
	_, _ = to.Close(), conn.Close()
	return <-served
}

// files are those of the module, with their bytes.
func (s *Rsync) files() (map[string][]byte, error) {
	all := map[string][]byte{}
	err := filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			all[path], err = os.ReadFile(path)
		}
		return err
	})
	return all, err
}

// spoil has each file have other bytes at the same time.
func (s *Rsync) spoil(mode Mode) error {
	files, err := s.files()
	if err != nil {
		return err
	}
	for path, data := range files {
		info, err := os.Stat(path)
		if err != nil || len(data) == 0 {
			return err
		}
		if data[len(data)-1]++; mode == Truncates {
			data = data[:len(data)-1]
		}
		if err := errors.Join(os.WriteFile(path, data, 0o644), os.Chtimes(path, info.ModTime(), info.ModTime())); err != nil {
			return err
		}
	}
	return nil
}
