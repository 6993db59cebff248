// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
)

// sshd is a server of ssh for this user, and the credentials that it takes.
func (l *lab) sshd() (port int, credentials string) {
	l.Helper()
	for program, from := range map[string]string{"rsync": "rsync", "ssh": "openssh-client", "/usr/sbin/sshd": "openssh-server"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				l.Fatalf("%s is not installed", from)
			}
			l.Skip("install ", from)
		}
	}
	if os.Getuid() != 0 {
		l.Skip("this needs the privilege to run sshd")
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // without it sshd does not start
		l.Fatal(err)
	}
	dir := l.TempDir()
	credentials = filepath.Join(dir, "credentials of the partner")
	if err := os.Mkdir(credentials, 0o700); err != nil {
		l.Fatal(err)
	}
	key := filepath.Join(credentials, wire.MirrorFileSSHKey)
	for _, file := range []string{filepath.Join(dir, "host"), filepath.Join(dir, "other"), key} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file).CombinedOutput(); err != nil {
			l.Fatalf("%v: %s", err, out)
		}
	}
	port = testenv.FreePort(l)
	config := fmt.Sprintf("ListenAddress 127.0.0.1\nListenAddress ::1\nPort %d\nHostKey %s/host\nAuthorizedKeysFile %q\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nPermitRootLogin prohibit-password\nPidFile none\n", port, dir, key+".pub")
	file := filepath.Join(dir, "sshd_config")
	host, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err == nil {
		err = errors.Join(os.WriteFile(file, []byte(config), 0o600),
			os.WriteFile(filepath.Join(credentials, wire.MirrorFileKnownHosts), fmt.Appendf(nil, "[127.0.0.1]:%d %s[::1]:%d %s", port, host, port, host), 0o600))
	}
	if err != nil {
		l.Fatal(err)
	}
	cmd := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", file)
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for range testenv.Attempts() {
		if conn, err := net.Dial("tcp", testenv.Loopback(port)); err == nil {
			_ = conn.Close()
			break
		}
	}
	return port, credentials
}

// Over ssh objects come to a folder; a host with another key gets none.
func TestSSH(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port, credentials := l.sshd()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "partner's folder")
	l.has = func() map[string]string { return l.read(dir) }
	l.mover, err = rsync.New(rsync.Config{
		MirrorRsync: wire.MirrorRsync{SSH: &wire.MirrorRsyncSSH{Host: "127.0.0.1", Port: port, User: me.Username, Path: dir}}, Credentials: credentials, Scratch: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(l.Put(archivetest.Camera, "2 æ.jpg", "two", at(storm)))
	l.push(2)
	l.want("over ssh", map[string]string{"allsky-1/1.jpg": "one", "allsky-1/2 æ.jpg": "two"})

	l.Wait(l.Put(archivetest.Camera, "3.jpg", "three", at(storm)))
	known := filepath.Join(credentials, wire.MirrorFileKnownHosts)
	right, err := os.ReadFile(known)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(credentials + "/../other.pub")
	if err != nil {
		t.Fatal(err)
	}
	for text, reason := range map[string]string{
		fmt.Sprintf("[127.0.0.1]:%d %s", port, other): wire.MirrorReasonHostKeyMismatch, "": wire.MirrorReasonHostKeyMismatch,
	} {
		if err := os.WriteFile(known, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var p *push.Problem
		if err := l.run(); !errors.As(err, &p) || p.Reason != reason || !strings.Contains(err.Error(), "@127.0.0.1:") || !strings.Contains(err.Error(), "knownHostsSecretKeyRef") {
			t.Errorf("known_hosts %.20q: %v", text, err)
		}
	}
	if err := os.WriteFile(known, right, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(credentials, wire.MirrorFileSSHKey+".pub"), other, 0o600); err != nil {
		t.Fatal(err)
	}
	var p *push.Problem
	if err := l.run(); !errors.As(err, &p) || p.Reason != wire.MirrorReasonAccessDenied {
		t.Errorf("another key: %v", err)
	}
	if has := l.has(); len(has) != 2 {
		t.Errorf("it has %v", has)
	}
}

// A host is an address of IPv6, and a folder in the home of the user there begins with a colon.
func TestSSHColons(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port, credentials := l.sshd()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	name := ":substorm-" + filepath.Base(t.TempDir()) + "-" + strconv.Itoa(port)
	dir := filepath.Join(me.HomeDir, name)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l.has = func() map[string]string { return l.read(dir) }
	l.mover, err = rsync.New(rsync.Config{
		MirrorRsync: wire.MirrorRsync{SSH: &wire.MirrorRsyncSSH{Host: "::1", Port: port, User: me.Username, Path: name}}, Credentials: credentials, Scratch: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Wait(l.Put(archivetest.Camera, "1.jpg", "one", at(storm)))
	l.push(1)
	l.want("over ssh", map[string]string{"allsky-1/1.jpg": "one"})
}

// A host that lets us write through rrsync, but not delete, gets everything, and what it keeps is reported.
func TestSSHWithoutDelete(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	port, credentials := l.sshd()
	rrsync, err := exec.LookPath("rrsync")
	if err != nil {
		t.Skip("rrsync comes with rsync, and is not installed")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l.has = func() map[string]string { return l.read(dir) }
	file := filepath.Join(credentials, wire.MirrorFileSSHKey+".pub")
	key, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, fmt.Appendf(nil, "command=\"%s -no-del %s\" %s", rrsync, dir, key), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.mover, err = rsync.New(rsync.Config{
		MirrorRsync: wire.MirrorRsync{SSH: &wire.MirrorRsyncSSH{Host: "127.0.0.1", Port: port, User: me.Username, Path: "a"}}, Credentials: credentials, Scratch: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	all, want := l.days(1)
	l.push(2)
	l.become(&all[0], wire.StateRetracted, "a lamp")
	l.Wait(l.Put(archivetest.Camera, "later.jpg", "later", at(storm.AddDate(0, 0, 2))))
	want["allsky-1/later.jpg"] = "later"
	var p *push.Problem
	if err := l.run(); !errors.As(err, &p) || p.Reason != wire.MirrorReasonAccessDenied || !p.Answered || !errors.Is(err, push.ErrKept) || !strings.Contains(err.Error(), "has been disabled on this server") {
		t.Errorf("%v", err)
	}
	there := map[string]string{}
	for path, text := range want {
		there["a/"+path] = text
	}
	l.want("all", there)
}
