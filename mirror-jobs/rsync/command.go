// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// target is where rsync writes. With colons in the host or after the one behind it, it would read another host, or a daemon.
func (m *Mover) target() string {
	if d := m.cfg.Daemon; d != nil {
		user := ""
		if d.User != "" {
			user = d.User + "@"
		}
		return "rsync://" + user + d.Address + "/" + strings.TrimSuffix(d.Module+"/"+d.Path, "/") + "/"
	}
	s := m.cfg.SSH
	host, path := s.Host, s.Path
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if strings.HasPrefix(path, ":") {
		path = "./" + path
	}
	return s.User + "@" + host + ":" + strings.TrimSuffix(path, "/") + "/"
}

// run runs rsync. Errors: push.Problem.
func (m *Mover) run(ctx context.Context, input []byte, out io.Writer, arguments ...string) (failures, error) {
	common := []string{"--archive", "--no-owner", "--no-group", "--no-perms", "--chmod=D755,F644", "--omit-dir-times", "--8-bit-output", "--mkpath", "--timeout=" + strconv.Itoa(silentSeconds)}
	if m.cfg.Daemon != nil {
		common = append(common, "--contimeout="+strconv.Itoa(connectSeconds))
	} else {
		common = append(common, "--rsh=ssh -F "+quoted(m.sshConfig()))
	}
	if m.cfg.BytesPerSecond != nil {
		if rate := m.cfg.BytesPerSecond(); rate > 0 {
			common = append(common, "--bwlimit="+strconv.FormatInt(max(1, rate/1024), 10))
		}
	}
	password, err := m.passwordFile()
	if err != nil {
		return failures{}, err
	}
	common = append(append(common, password...), greetingArguments...)
	greeted, stdout, stop := greet(ctx, cmp.Or(m.cfg.Greeting, greetingTime), out)
	defer stop()
	cmd := exec.CommandContext(greeted, m.cfg.Program, append(common, arguments...)...)
	defer endWithParent(cmd)()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it tidies up at the other side
	cmd.WaitDelay = 10 * time.Second
	said := &bounded{most: maxSaid}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), stdout, said
	cmd.Env = environment()
	err = cmd.Run()
	if err == nil {
		return failures{}, nil
	}
	if ctx.Err() != nil {
		return failures{}, ctx.Err()
	}
	if cause := context.Cause(greeted); errors.Is(cause, errGreeting) {
		return failures{}, m.explain(&push.Problem{Reason: wire.MirrorReasonUnreachable, Err: cause})
	}
	failed, err := judge(err, said.String())
	failed.cut = said.Len() >= said.most
	return failed, m.explain(err)
}

// environment is the part of this process's environment that rsync, and the ssh that it runs, get.
func environment() []string {
	all := []string{"LC_ALL=C"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "TZ"} {
		if value, is := os.LookupEnv(name); is {
			all = append(all, name+"="+value)
		}
	}
	return all
}

// passwordFile names a copy of the daemon's password to rsync, which reads no file that others may read, as mounted ones are.
func (m *Mover) passwordFile() ([]string, error) {
	if m.cfg.Daemon == nil || m.cfg.Daemon.User == "" {
		return nil, nil
	}
	password, err := os.ReadFile(filepath.Join(m.cfg.Credentials, wire.MirrorFilePassword))
	if err != nil {
		return nil, &push.Problem{Reason: wire.MirrorReasonAccessDenied, Err: fmt.Errorf("the password of the rsync daemon: %w", err)}
	}
	name := filepath.Join(m.cfg.Scratch, "password")
	if err := errors.Join(os.RemoveAll(name), os.WriteFile(name, password, 0o600)); err != nil {
		return nil, err
	}
	return []string{"--password-file=" + name}, nil
}

// explain adds to what rsync says of the partner as a whole where that is, and what to do.
func (m *Mover) explain(err error) error {
	var p *push.Problem
	if !errors.As(err, &p) {
		return err
	}
	step := ""
	switch d := m.cfg.Daemon; {
	case p.Reason == wire.MirrorReasonAccessDenied && p.Answered:
		step = ": the partner is to allow this option (refuse options in its rsyncd.conf, or -no-del of rrsync); to remove copies rsync needs --delete and --delete-missing-args"
	case p.Reason == wire.MirrorReasonHostKeyMismatch:
		step = ": ask the partner for its host key, and put it into the Secret of spec.rsync.ssh.knownHostsSecretKeyRef if it is another one"
	case p.Reason == wire.MirrorReasonAccessDenied && strings.Contains(err.Error(), "read only"):
		step = ": the partner is to let this module be written to (read only = no in its rsyncd.conf), or spec.rsync.daemon.module names another one"
	case p.Reason == wire.MirrorReasonPartnerFull:
		step = ": the partner's disk is full, or its quota used up: it is to make space, or select less of the Site in spec.selection"
	case p.Reason == wire.MirrorReasonAccessDenied && d == nil:
		step = ": the partner is to let in the public key that belongs to the Secret of spec.rsync.ssh.privateKeySecretKeyRef"
	case p.Reason == wire.MirrorReasonAccessDenied && d.User != "" && strings.Contains(err.Error(), authFailed):
		step = ": correct spec.rsync.daemon.user, or the password in the Secret of spec.rsync.daemon.passwordSecretKeyRef"
	}
	return &push.Problem{Reason: p.Reason, Answered: p.Answered, Err: fmt.Errorf("%s: %w%s", strings.TrimSuffix(m.target(), "/"), p.Err, step)}
}

// configure writes the configuration of ssh, which asks nothing and trusts only known_hosts.
// It is a file since rsync and ssh split their arguments at spaces, each in its own way.
func (m *Mover) configure() error {
	if m.cfg.SSH == nil {
		return nil
	}
	text := fmt.Sprintf(`Host *
	Port %d
	IdentityFile %q
	UserKnownHostsFile %q
	GlobalKnownHostsFile /dev/null
	StrictHostKeyChecking yes
	IdentitiesOnly yes
	BatchMode yes
	ConnectTimeout %d
`, m.cfg.SSH.Port, filepath.Join(m.cfg.Credentials, wire.MirrorFileSSHKey), filepath.Join(m.cfg.Credentials, wire.MirrorFileKnownHosts), connectSeconds)
	return os.WriteFile(m.sshConfig(), []byte(text), 0o600)
}

func (m *Mover) sshConfig() string { return filepath.Join(m.cfg.Scratch, "ssh_config") }

// quoted is a word for rsync's --rsh, which splits at spaces.
func quoted(word string) string { return `"` + strings.ReplaceAll(word, `"`, `""`) + `"` }
